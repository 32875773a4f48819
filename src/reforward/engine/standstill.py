"""A worker and all that it started, brought to a stop as one, and found out if any of it ran meanwhile.

A stop signal alone does not hold: it takes a moment, a process that keeps forking is never where one looked, and a timer of the
kernel can be told to continue its owner. So a stop is confirmed, and processor time is compared at the end.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 5.0
"""After so long, whatever still starts processes is not going to stand still."""
LOOK_S = 0.0001
"""Between two looks."""
TOLERANCE_NS = 1_000_000
"""Of all processes together."""
STOPPED, DEAD = frozenset("Tt"), frozenset("ZX")
"""Letters of `/proc/<pid>/task/<tid>/stat`, see proc_pid_stat(5)."""
CLEAN_LOOKS = 2
"""In a row: one look can miss a process that changes its parent while it goes on."""

Times = dict[int, int]
"""Processor nanoseconds of each process, by pid."""


class Restless(Exception):
    """It does not stop, or it ran while it was stopped; the text says which."""


def stop(pid: int) -> Times:
    """Stop all threads of a process and of its descendants; returns once they stand still. Raises `Restless`."""
    until = time.monotonic() + PATIENCE_S
    clean = 0
    while clean < CLEAN_LOOKS:
        if time.monotonic() > until:
            raise Restless(f"it does not stop within {PATIENCE_S:g} s of being told to")
        running = [other for other in family(pid) if not _still(other)]
        _signal(running, signal.SIGSTOP)
        clean = 0 if running else clean + 1
        if running:
            time.sleep(LOOK_S)
    return _settled(pid, until)


def _settled(pid: int, until: float) -> Times:
    """Their times once these stand still too: a thread that is marked as stopped has yet to leave its processor, and on a
    machine whose processors are lent away in between, that is charged to it as milliseconds."""
    before = times(pid)
    while True:
        time.sleep(LOOK_S)
        after = times(pid)
        if after == before:
            return after
        if time.monotonic() > until:
            raise Restless(f"it goes on using the processor {PATIENCE_S:g} s after it was told to stop")
        before = after


def go_on(pid: int) -> None:
    """Continue all of them."""
    _signal(list(family(pid)), signal.SIGCONT)


def check(pid: int, before: Times) -> None:
    """Raises `Restless` if they used the processor since `stop`, or if one is new, or gone with what it used."""
    after = times(pid)
    if before.keys() - after.keys():
        raise Restless("one of its processes ended while it was stopped")
    if after.keys() - before.keys():
        raise Restless("it started a process while it was stopped")
    spent = sum(after.values()) - sum(before.values())
    if spent > TOLERANCE_NS:
        raise Restless(f"it used {spent / 1e6:.0f} ms of processor while it was stopped")


def times(pid: int) -> Times:
    """Processor time of all of them so far; those that are gone, or dead and not yet waited for, are left out."""
    found: Times = {}
    for other in family(pid):
        if _states(other) - DEAD:
            with suppress(OSError):
                found[other] = time.clock_gettime_ns(_clock_of(other))
    return found


def family(pid: int) -> Iterator[int]:
    """The process and all that descends from it; orphans belong to the first process of their namespace."""
    queue = [pid]
    while queue:
        parent = queue.pop()
        yield parent
        queue += _children(parent)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(word) for text in texts for word in text.split()]
    return []


def _still(pid: int) -> bool:
    """All its threads are stopped, or dead. One that is gone was running when its parent's list was read."""
    states = _states(pid)
    return bool(states) and states <= STOPPED | DEAD


def _states(pid: int) -> set[str]:
    """States of all its threads: a process whose first thread has ended looks dead, and lives on. Empty if it is gone."""
    found: set[str] = set()
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found.add(_state(thread))
    return found


def _state(thread: Path) -> str:
    """The letter of a thread; empty if it went meanwhile, which it did while it ran."""
    with suppress(OSError):
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _clock_of(pid: int) -> int:
    """The clock of a process's processor time, as clock_getcpuclockid(3) makes it."""
    return (~pid << 3) | 2


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
