"""How fast this machine reads memory, in a process of its own: the floor under every decode step.

python -m reforward.engine.bandwidth THREADS      prints one JSON document

Sums of a buffer on huge pages that no cache holds, all threads at once, the best of several passes. On an AVX-512 EPYC
with two cores that comes out level with a C++ loop of prefetching loads (41.7 against 39.3 GB/s).
"""

import json
import mmap
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reforward.domain.calibration import Bandwidth
from reforward.engine.program import told_by

SIZE = 256 << 20
BLOCK = 1 << 17
"""Elements that one call sums: 1 MiB."""
PASSES = 7


def read_bandwidth(threads: int) -> Bandwidth:
    """Measured now, with `threads` threads; takes half a second. Raises `EngineLost` if it cannot be measured.

    The cache is all of the last level.
    """
    return Bandwidth(**told_by("reforward.engine.bandwidth", str(threads)))


def last_level_bytes(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Sizes of all distinct caches of the highest level; 0 if the machine does not say."""
    found: dict[tuple[int, str], int] = {}
    for folder in root.glob("cpu[0-9]*/cache/index*"):
        level = int((folder / "level").read_text())
        size = (folder / "size").read_text().strip()
        found[level, (folder / "shared_cpu_list").read_text().strip()] = int(size.rstrip("K")) * 1024
    highest = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == highest)


def _sum(part: NDArray[np.uint64]) -> int:
    return sum(int(np.add.reduce(part[at : at + BLOCK])) for at in range(0, len(part), BLOCK))


def main() -> None:
    """Measure and print."""
    threads = int(sys.argv[1])
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    numbers = np.frombuffer(memory, dtype=np.uint64)
    numbers[:] = 1
    parts, seconds = np.array_split(numbers, threads), list[float]()
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(PASSES):
            begun = time.perf_counter()
            total = sum(pool.map(_sum, parts))
            seconds.append(time.perf_counter() - begun)
            assert total == len(numbers), total
    print(json.dumps(asdict(Bandwidth(read_bytes_s=SIZE / min(seconds), cache_bytes=last_level_bytes()))))


if __name__ == "__main__":
    main()
