"""One read of device memory by a kernel of ours: are the bytes unchanged, is the device idle, and nobody's data is left in L2.

A store to a read-only mapping faults, but a process can map shared memory anew; the keyed sum finds what that changed. Work
that a stopped process left on the device shares it with the sweep, which then takes longer than it did on an idle device.
"""

import ctypes
import secrets
import time
from importlib import resources

from reforward.engine.cuda.driver import Driver

THREADS = 256
BLOCKS_PER_PROCESSOR = 8
WORDS = 16
"""Bytes that one thread reads at once."""
PROCESSORS, L2_BYTES = 16, 38
"""Attribute numbers: the count of multiprocessors, the size of the cache that they share."""


class Sweep:
    """The compiled kernel and its key, in the holder's context."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._key = secrets.randbits(64)
        text = resources.files("reforward.engine.cuda").joinpath("sweep.ptx").read_bytes()
        self._kernel, self._out = driver.kernel(text, b"sweep"), driver.allocate(8)
        self._blocks = BLOCKS_PER_PROCESSOR * driver.attribute(PROCESSORS)

    def __call__(self, address: int, nbytes: int) -> tuple[int, float]:
        """Keyed sum and seconds of one read of `nbytes`, a multiple of 16."""
        self._driver.call("cuMemsetD8_v2", ctypes.c_uint64(self._out), ctypes.c_ubyte(0), ctypes.c_size_t(8))
        self._driver.call("cuCtxSynchronize")
        begun = time.perf_counter()
        self._driver.launch(self._kernel, self._blocks, THREADS, address, nbytes // WORDS, self._key, self._out)
        self._driver.call("cuCtxSynchronize")
        seconds = time.perf_counter() - begun
        found = bytearray(8)
        self._driver.download(found, self._out)
        return int.from_bytes(found, "little"), seconds
