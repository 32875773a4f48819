"""How much of the processors others use: all that is busy on the machine, less what is ours.

On a busy machine an operation that is shared by two threads waits for the one that found no processor, so that code with one
thread wins by a factor that is the neighbours' and not its own.
"""

import os
import time
from functools import cache
from pathlib import Path

from reforward.engine import standstill

STAT = Path("/proc/stat")
IDLE = (3, 4)
"""Columns of a processor's line that are no use: idle, and idle while a disk is waited for; see proc_stat(5)."""
COLUMNS = 8
"""Later ones are guests, which are counted as users already."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Meter:
    """Counts from when it is made. `pid`: of the worker that is measured; all that descends from it is its own."""

    def __init__(self, pid: int, *, threads: int) -> None:
        self.pid, self.threads = pid, threads
        self.begun, self.other = time.monotonic(), self._others_s()

    def crowded(self) -> float:
        """Share of the worker's processors that others had, on average: 0 where there were enough for all."""
        if not self.pid:
            return 0.0
        seconds = time.monotonic() - self.begun
        busy = max(0.0, self._others_s() - self.other) / max(seconds, TICK_S)
        return max(0.0, busy + self.threads - cores()) / self.threads

    def _others_s(self) -> float:
        """Processor time since the machine began that neither the worker nor this process had."""
        own = sum(standstill.times(self.pid).values()) / 1e9 if self.pid else 0.0
        return busy_s() - own - time.process_time()


def busy_s() -> float:
    """Seconds that the processors this process may use were used since the machine began, by others' machines included."""
    allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = [line.split() for line in STAT.read_text().splitlines() if line.partition(" ")[0] in allowed]
    ticks = [int(ticks) for line in lines for place, ticks in enumerate(line[1 : 1 + COLUMNS]) if place not in IDLE]
    return TICK_S * sum(ticks)


def cores() -> int:
    """Distinct cores among the processors that this process may use: threads of one count once. A quota limits us, not others."""
    return _cores_among(frozenset(os.sched_getaffinity(0)))


@cache
def _cores_among(cpus: frozenset[int]) -> int:
    return len({_core_of(cpu) for cpu in cpus})


def _core_of(cpu: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return path.read_text().strip() if path.is_file() else str(cpu)
