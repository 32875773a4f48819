"""Memory that no process is charged for: files of memory file systems and files without a name, unless they are mapped."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

BLOCK = 512
"""Unit of `st_blocks`."""


def held_bytes(pids: Iterable[int]) -> int:
    """Bytes in the scratch mounts that these processes see, and in the files without a name that they hold open."""
    mounts: dict[int, int] = {}
    files: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError):
            mounts |= _mounts(pid)
        with suppress(OSError):
            files |= _nameless(pid)
    return sum(mounts.values()) + sum(files.values())


def _mounts(pid: int) -> dict[int, int]:
    """Device number to bytes in use, of the scratch file systems in the process's own mount namespace."""
    found: dict[int, int] = {}
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        about, _, system = line.partition(" - ")
        if system.startswith("tmpfs scratch "):
            place = Path(f"/proc/{pid}/root{about.split()[4]}")
            filled = os.statvfs(place)
            found[place.stat().st_dev] = (filled.f_blocks - filled.f_bfree) * filled.f_frsize
    return found


def _nameless(pid: int) -> dict[tuple[int, int], int]:
    """(device, inode) to bytes of its `memfd` files."""
    found: dict[tuple[int, int], int] = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if str(link.readlink()).startswith("/memfd:"):
                about = link.stat()
                found[about.st_dev, about.st_ino] = about.st_blocks * BLOCK
    return found
