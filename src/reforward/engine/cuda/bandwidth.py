"""How fast a device reads its memory: the floor under every decode step there.

Eight loads of 16 bytes a thread on their way at once, over memory that no cache holds; the best of several grids and passes,
timed by the device's own events.
"""

import ctypes
from importlib import resources

from reforward.domain.calibration import Bandwidth
from reforward.engine.cuda.driver import Driver
from reforward.engine.cuda.sweep import L2_BYTES, PROCESSORS

SIZE = 32
"""Times the L2's size: so much is read in one pass."""
THREADS, LOADS = 256, 8
WORDS = 16
"""Bytes of one load."""
BLOCKS_PER_PROCESSOR = (1, 2, 4, 8)
PASSES = 5
SHARED_BYTES, REGISTERS = 81, 82
"""Attribute numbers: of one multiprocessor."""


def read_bandwidth(driver: Driver) -> Bandwidth:
    """Measured now, in milliseconds, by the process of the driver. The cache is the L2, and all that the multiprocessors hold."""
    processors = driver.attribute(PROCESSORS)
    inside = processors * (driver.attribute(SHARED_BYTES) + 4 * driver.attribute(REGISTERS))
    stride = max(BLOCKS_PER_PROCESSOR) * processors * THREADS * LOADS * WORDS
    size = -(-SIZE * driver.attribute(L2_BYTES) // stride) * stride
    text = resources.files("reforward.engine.cuda").joinpath("read.ptx").read_bytes()
    kernel, memory, out = driver.kernel(text, b"read"), driver.allocate(size), driver.allocate(8)
    try:
        best = min(
            _seconds(driver, kernel, blocks * processors, memory, size, out)
            for blocks in BLOCKS_PER_PROCESSOR
            for _ in range(PASSES)
        )
    finally:
        driver.free(memory)
        driver.free(out)
    return Bandwidth(read_bytes_s=size / best, cache_bytes=driver.attribute(L2_BYTES) + inside)


def _seconds(driver: Driver, kernel: ctypes.c_void_p, blocks: int, memory: int, size: int, out: int) -> float:
    """Of one pass. Every grid divides the size, so that all of it is read."""
    begun, ended, milliseconds = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
    for event in (begun, ended):
        driver.call("cuEventCreate", ctypes.byref(event), 0)
    driver.call("cuEventRecord", begun, ctypes.c_void_p())
    driver.launch(kernel, blocks, THREADS, memory, size // WORDS, out)
    driver.call("cuEventRecord", ended, ctypes.c_void_p())
    driver.call("cuEventSynchronize", ended)
    driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), begun, ended)
    for event in (begun, ended):
        driver.call("cuEventDestroy_v2", event)
    return milliseconds.value / 1e3
