"""Read bandwidth of this machine, by page kind: the denominator of every share of the floor."""

import ctypes
import mmap
import subprocess
import tempfile
from pathlib import Path

SIZE = 540 << 20
MADV_HUGEPAGE, MADV_NOHUGEPAGE = 14, 15


def read_bandwidth(threads: int, *, huge: bool, repeats: int = 7) -> list[float]:
    """GB/s of `repeats` passes over an anonymous buffer as large as SmolLM2 in fp32; needs g++."""
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(MADV_HUGEPAGE if huge else MADV_NOHUGEPAGE)
    for start in range(0, SIZE, 1 << 20):
        memory[start : start + (1 << 20)] = bytes([start >> 20 & 255]) * (1 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    probe, total = _probe(), ctypes.c_uint64()
    return [SIZE / probe(address, SIZE, threads, ctypes.byref(total)) / 1e9 for _ in range(repeats)]


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
