"""What a worker and the processes it started cost in memory, from the kernel's own books."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from reforward.engine.unmapped import held_bytes


def private_bytes(pid: int, others: Sequence[int], *, common: int, outbox: int, state: int) -> int:
    """The peak of a worker's own pages, what its children hold now, and files that live in memory.

    `common` bytes of shared memory are not its own (weights, packs, outbox); `state` was allocated on its demand and is
    counted elsewhere. What a child shares with its parent since the fork counts once: by the kernel's proportional share.
    """
    own = _fields(pid, "status")
    shared = own.get("RssShmem", 0)
    peak = own.get("VmHWM", 0) - own.get("RssFile", 0) - min(common, shared) - state
    beyond = max(0, shared - common)
    children = 0
    for child in others:
        mapped = max(0, _fields(child, "status").get("RssShmem", 0) - common)
        children += _fields(child, "smaps_rollup").get("Pss_Anon", 0) + mapped
        beyond += mapped
    return max(0, peak) + children + max(0, held_bytes([pid, *others]) - outbox - beyond)


def _fields(pid: int, table: str) -> dict[str, int]:
    """Byte counts of `/proc/<pid>/<table>`; empty if the process is gone."""
    lines: list[str] = []
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/{table}").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if line.endswith(" kB") and ":" in line)
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}
