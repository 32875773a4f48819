"""A device for tests: the driver over memory files, compiled once; on a machine with a GPU, the GPU too."""

import ctypes
import ctypes.util
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.tiny import DEADLINES, MACHINE, SPEC, subject_of
from reforward.engine.client import Source
from reforward.engine.cuda.card import Card
from reforward.engine.cuda.engine import CudaEngine

SOURCE = Path(__file__).parent / "driver.cpp"


def file_card(folder: Path) -> Card:
    """The driver over memory files."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile the driver over memory files")
    library = folder / "libdevice.so"
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(library)], check=True)
    return Card(place="cpu", driver=str(library), monitor=str(library))


def real_card() -> Card:
    """The first NVIDIA GPU."""
    try:
        ctypes.CDLL(Card().driver)
    except OSError:
        pytest.skip("no CUDA device")
    return Card()


def open_cuda_engine(card: Card, file: Path, cache: Path) -> CudaEngine:
    """An engine on the tiny model."""
    subject, stored = subject_of(file)
    source = Source(tensors=stored, readable=(str(Path(card.driver).parent),) if card.place == "cpu" else ())
    return CudaEngine(
        source,
        subject,
        SPEC,
        card=card,
        threads=1,
        machine=MACHINE,
        software=("test",),
        cache=cache,
        deadlines=DEADLINES,
    )
