"""Files of lines that a process appends to: rotated by size, bounded in all, whole after a crash or a full disk."""

import errno
import itertools
import os
import time
from datetime import UTC, datetime
from pathlib import Path

SHAPES, CONTENTS = ".jsonl", ".enc"
"""How files end, by what they hold."""
FILE_BYTES = 64 << 20
FOLDER_BYTES = 1 << 30
"""Largest file, and largest sum of files: beyond it the oldest are deleted."""
_NUMBERS = itertools.count(1)
"""Files of this process have different numbers, whatever the wall clock does."""


class Segments:
    """Appends whole lines or nothing. Each process, and each rotation, has a file of its own, so nothing is ever mended."""

    def __init__(self, folder: Path, suffix: str, *, file_bytes: int = FILE_BYTES, folder_bytes: int = FOLDER_BYTES):
        self.folder, self.suffix, self.file_bytes, self.folder_bytes = folder, suffix, file_bytes, folder_bytes
        self.deleted = 0
        """Old files that made room for new ones."""
        self._handle, self._size = -1, 0

    def append(self, lines: bytes, head: bytes) -> None:
        """Add `lines` to the file in use; a new file begins with `head`. `OSError` leaves the file as it was."""
        if self._handle < 0 or self._gone() or self._size + len(lines) > self.file_bytes:
            self._rotate(head)
        self._write(lines)

    def close(self) -> None:
        """Flush to the disk."""
        if self._handle >= 0:
            os.fsync(self._handle)
            os.close(self._handle)
        self._handle = -1

    def _gone(self) -> bool:
        """Whether somebody deleted the file in use."""
        return os.fstat(self._handle).st_nlink == 0

    def _rotate(self, head: bytes) -> None:
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}-{next(_NUMBERS):04d}{self.suffix}"
        path = self.folder / name
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._handle, self._size = handle, 0
        try:
            self._write(head)
        except OSError:
            os.close(handle)
            self._handle = -1
            path.unlink()
            raise
        self._make_room()

    def _write(self, data: bytes) -> None:
        """All of it, or the file is cut back to what it was."""
        try:
            done = os.write(self._handle, data)
        except OSError:
            os.ftruncate(self._handle, self._size)
            raise
        if done < len(data):
            os.ftruncate(self._handle, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(data)

    def _make_room(self) -> None:
        """Delete the oldest files, by name, until a full file fits; never the one in use."""
        files = sorted(path for path in self.folder.iterdir() if path.name.endswith(self.suffix))
        sizes = {path: path.stat().st_size for path in files}
        for path in files[:-1]:
            if sum(sizes.values()) + self.file_bytes <= self.folder_bytes:
                break
            path.unlink(missing_ok=True)
            del sizes[path]
            self.deleted += 1


def purge(folder: Path, suffix: str, older_s: float) -> int:
    """Delete the files whose last line is at least so old; how many."""
    gone = 0
    for path in folder.glob(f"*{suffix}") if folder.is_dir() else ():
        if time.time() - path.stat().st_mtime >= older_s:
            path.unlink(missing_ok=True)
            gone += 1
    return gone
