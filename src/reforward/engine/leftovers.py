"""Folders that untrusted code wrote to: removed whatever lies in them, also after the process that owned them was killed."""

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

ABANDONED_S = 3600.0
"""A folder that nobody holds and that is this old has no owner any more."""


@contextmanager
def own_folder(parent: Path, prefix: str) -> Generator[Path]:
    """A new, empty folder below `parent`, removed at the end. What killed owners left there goes first."""
    parent.mkdir(parents=True, exist_ok=True)
    folder, held = make(parent, prefix)
    try:
        yield folder
    finally:
        os.close(held)
        remove(folder)


def make(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new folder and a descriptor that holds it; for owners whose life is no block of code."""
    sweep(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    return folder, held


def sweep(parent: Path, prefix: str) -> None:
    """Remove abandoned folders."""
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > ABANDONED_S and not _held(folder):
                remove(folder)


def remove(folder: Path) -> None:
    """Remove a tree of any depth and any rights. `rm` needs no recursion of Python's, which a deep tree would exhaust."""
    if folder.exists():
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(folder)], check=False, capture_output=True)


def _held(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
