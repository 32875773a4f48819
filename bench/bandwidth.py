"""Read bandwidth of this machine, by page kind: the denominator of every share of the floor."""

import ctypes
import mmap
import subprocess
import tempfile
from pathlib import Path

SIZE = 540 << 20
MADV_HUGEPAGE, MADV_NOHUGEPAGE = 14, 15


class Reader:
    """An anonymous buffer as large as SmolLM2 in fp32, and a probe that reads all of it; needs g++."""

    def __init__(self, threads: int, *, huge: bool) -> None:
        self.memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory.madvise(MADV_HUGEPAGE if huge else MADV_NOHUGEPAGE)
        for start in range(0, SIZE, 1 << 20):
            self.memory[start : start + (1 << 20)] = bytes([start >> 20 & 255]) * (1 << 20)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.probe, self.threads = _probe(), threads

    def go(self) -> float:
        """GB/s of one pass."""
        return SIZE / self.probe(self.address, SIZE, self.threads, ctypes.byref(ctypes.c_uint64())) / 1e9


def read_bandwidth(threads: int, *, huge: bool, repeats: int = 7) -> list[float]:
    """GB/s of `repeats` passes."""
    reader = Reader(threads, huge=huge)
    return [reader.go() for _ in range(repeats)]


def _probe() -> "ctypes._NamedFuncPointer":
    source = Path(__file__).parent / "read_probe.cpp"
    target = Path(tempfile.mkdtemp()) / "read_probe.so"
    subprocess.run(
        ["g++", "-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread", str(source), "-o", str(target)],
        check=True,
    )
    function = ctypes.CDLL(str(target)).read_seconds
    function.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p]
    function.restype = ctypes.c_double
    return function
