"""For a candidate's `build.py`: compile C++ into a shared library, and load it again in the worker."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from reforward.domain.errors import CandidateFailed

COMPILER = "g++"
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread", "-fno-gnu-unique")
"""The last: statics of templates and inline functions are otherwise one for all libraries of a process that have them."""
LOG_TAIL = 3500


def compile_shared(sources: Sequence[Path], out: Path, name: str, flags: Sequence[str] = ()) -> Path:
    """Compile `sources` to `out/<name>.so` with `FLAGS` and then `flags`; headers beside the sources are found.

    Raises `CandidateFailed` at stage `build`, with the compiler's own words as its log.
    """
    if shutil.which(COMPILER) is None:
        raise CandidateFailed("build", f"there is no {COMPILER} on this machine; install it (apt-get install g++)")
    target = out / f"{name}.so"
    command = [COMPILER, *FLAGS, *flags, *map(str, sources), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}")
        raise CandidateFailed("build", f"{COMPILER} failed: {first}"[:500], done.stderr[-LOG_TAIL:])
    return target


def load_shared(path: Path) -> ctypes.CDLL:
    """The library of an earlier `compile_shared`; raises `CandidateFailed` if the build stage did not leave it."""
    if not path.is_file():
        raise CandidateFailed("load", f"the build stage left no {path.name}; does build.py make it?")
    return ctypes.CDLL(str(path))
