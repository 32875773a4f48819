"""What a worker and the processes it started cost in memory, from the kernel's own books."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from reforward.engine.unmapped import held_bytes


def private_bytes(pid: int, others: Sequence[int], *, common: int, outbox: int, state: int) -> int:
    """The peak of a worker's own pages, what its children hold now, and files that live in memory.

    `common` bytes of shared memory are not its own (weights, packs, outbox); `state` was allocated on its demand and is
    counted elsewhere. Pages that a child only inherited are the worker's and count once.
    """
    own = _fields(pid, "status")
    shared = own.get("RssShmem", 0)
    peak = own.get("VmHWM", 0) - own.get("RssFile", 0) - min(common, shared) - state
    mapped = sum(max(0, _fields(other, "status").get("RssShmem", 0) - common) for other in others)
    unmapped = held_bytes([pid, *others]) - outbox - max(0, shared - common) - mapped
    return max(0, peak) + _of_children(pid, others, mapped) + max(0, unmapped)


def _of_children(pid: int, others: Sequence[int], mapped: int) -> int:
    """What they do not share with the worker: pages of one process alone, or what all together hold beyond the worker."""
    if not others:
        return 0
    books = [_fields(other, "smaps_rollup") for other in others]
    alone = sum(book.get("Private_Clean", 0) + book.get("Private_Dirty", 0) for book in books)
    worker = _fields(pid, "smaps_rollup")
    family = worker.get("Pss_Anon", 0) + sum(book.get("Pss_Anon", 0) for book in books)
    return max(alone, family - worker.get("Anonymous", 0) + mapped)


def _fields(pid: int, table: str) -> dict[str, int]:
    """Byte counts of `/proc/<pid>/<table>`; empty if the process is gone."""
    lines: list[str] = []
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/{table}").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if line.endswith(" kB") and ":" in line)
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}
