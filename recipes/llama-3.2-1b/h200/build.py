"""Build stage: compile the decode kernel for Hopper with nvcc."""

import shutil
import subprocess
from pathlib import Path

from reforward.domain.errors import CandidateFailed

SOURCES = ("persistent",)
FLAGS = ("-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-gencode=arch=compute_90a,code=sm_90a")


def build(out: Path) -> None:
    """Leave `<source>.so` in `out` for every source."""
    if shutil.which("nvcc") is None:
        raise CandidateFailed("build", "there is no nvcc on this machine; install the CUDA toolkit 13.0")
    here = Path(__file__).parent
    for source in SOURCES:
        command = ["nvcc", *FLAGS, str(here / f"{source}.cu"), "-o", str(out / f"{source}.so")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}")
            raise CandidateFailed("build", f"nvcc failed: {first}"[:500], done.stderr[-3500:])
