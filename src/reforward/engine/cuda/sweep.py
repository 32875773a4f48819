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
_PROCESSORS = 16
"""Attribute number of the count of multiprocessors."""


class Sweep:
    """The compiled kernel and its key, in the holder's context."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._key = secrets.randbits(64)
        module, self._kernel, self._out = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        text = resources.files("reforward.engine.cuda").joinpath("sweep.ptx").read_bytes()
        driver.call("cuModuleLoadData", ctypes.byref(module), text)
        driver.call("cuModuleGetFunction", ctypes.byref(self._kernel), module, b"sweep")
        driver.call("cuMemAlloc_v2", ctypes.byref(self._out), ctypes.c_size_t(8))
        self._blocks = BLOCKS_PER_PROCESSOR * driver.attribute(_PROCESSORS)

    def __call__(self, address: int, nbytes: int) -> tuple[int, float]:
        """Keyed sum and seconds of one read of `nbytes`, a multiple of 16."""
        values = [ctypes.c_uint64(value) for value in (address, nbytes // WORDS, self._key, self._out.value)]
        arguments = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
        self._driver.call("cuMemsetD8_v2", self._out, ctypes.c_ubyte(0), ctypes.c_size_t(8))
        self._driver.call("cuCtxSynchronize")
        begun = time.perf_counter()
        self._driver.call(
            "cuLaunchKernel", self._kernel, self._blocks, 1, 1, THREADS, 1, 1, 0, ctypes.c_void_p(), arguments,
            ctypes.c_void_p(),
        )  # fmt: skip
        self._driver.call("cuCtxSynchronize")
        seconds = time.perf_counter() - begun
        found = bytearray(8)
        self._driver.download(found, self._out.value)
        return int.from_bytes(found, "little"), seconds
