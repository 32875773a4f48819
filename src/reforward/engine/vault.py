"""Weights in memory once: one file on a private huge-page tmpfs, filled byte by byte, then read-only for everybody.

Runs in the server, in its own mount namespace; never runs candidate code and never a torch operation. A worker maps the file
`MAP_SHARED` and read-only from a file system that is mounted read-only, so no mapping can be made writable, not even by root.
Without a mount namespace the files lie in an ordinary memory file, and pages are 4 KiB.
"""

import math
import mmap
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reforward.engine import syscalls
from reforward.engine.wire import Stored

ALIGN = 64
HUGE = 2 << 20
WEIGHTS = "weights"


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """One sealed file of tensors."""

    path: Path
    tensors: tuple[Stored, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def map(self) -> mmap.mmap | None:
        """A shared, read-only mapping of the file; None if it holds no bytes."""
        if not self.nbytes:
            return None
        with self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)


class Vault:
    """The shelves of one server. `root` must lie on a file system of its own if `private` is True."""

    def __init__(self, root: Path, *, private: bool) -> None:
        self.root, self.private = root, private
        self.shelves: dict[str, Shelf] = {}
        self.pages = "4k"

    def load(self, tensors: Sequence[Stored]) -> Shelf:
        """Read checkpoint tensors into place."""
        placed = place(tensors)
        folder = self._open_shelf(WEIGHTS, extent(placed))
        _fill(folder / "data", tensors, placed)
        return self.seal(WEIGHTS, placed)

    def writable(self, key: str, nbytes: int) -> Path:
        """A new, empty file to be filled by a trusted loader or a pack worker, before `seal`."""
        return self._open_shelf(key, nbytes) / "data"

    def seal(self, key: str, tensors: tuple[Stored, ...]) -> Shelf:
        """Make a shelf read-only. Fails if anybody still has it open for writing, or if a tensor lies outside the file."""
        folder = self.root / key
        size = (folder / "data").stat().st_size
        if any(t.offset % ALIGN or t.offset < 0 or t.offset + t.nbytes > size for t in tensors):
            raise ValueError(f"a tensor of {key!r} lies outside its file of {size:,} bytes")
        (folder / "data").chmod(0o444)
        if self.private:
            syscalls.mount("shelf", str(folder), "none", syscalls.MS_REMOUNT | syscalls.MS_RDONLY)
        self.shelves[key] = Shelf(path=folder / "data", tensors=tensors)
        return self.shelves[key]

    def drop(self, key: str) -> None:
        """Forget a shelf; its memory is freed when the last mapping ends."""
        self.shelves.pop(key, None)
        if self.private:
            with suppress(OSError):
                syscalls.unmount(str(self.root / key))

    def _open_shelf(self, key: str, nbytes: int) -> Path:
        folder = self.root / key
        folder.mkdir(mode=0o755, exist_ok=True)
        if self.private:
            size = -(-(nbytes + 2 * HUGE) // HUGE) * HUGE
            self.pages = _mount_shelf(folder, size)
        return folder


def _mount_shelf(folder: Path, size: int) -> str:
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    try:
        syscalls.mount("shelf", str(folder), "tmpfs", flags, f"size={size},mode=755,huge=always")
    except OSError:
        syscalls.mount("shelf", str(folder), "tmpfs", flags, f"size={size},mode=755")
        return "4k"
    return "huge"


def place(tensors: Iterable[Stored]) -> tuple[Stored, ...]:
    """The same tensors, one after the other, each at a multiple of 64 bytes."""
    placed: list[Stored] = []
    at = 0
    for tensor in tensors:
        placed.append(Stored(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, offset=at, nbytes=tensor.nbytes))
        at += -(-tensor.nbytes // ALIGN) * ALIGN
    return tuple(placed)


def extent(placed: Sequence[Stored]) -> int:
    """Bytes that a file of placed tensors needs, in whole huge pages."""
    end = max((tensor.offset + tensor.nbytes for tensor in placed), default=0)
    return max(1, math.ceil(end / HUGE)) * HUGE


def _fill(path: Path, sources: Sequence[Stored], placed: Sequence[Stored]) -> None:
    size = extent(placed)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(handle, size)
        with mmap.mmap(handle, size) as target:
            view = memoryview(target)
            for source, goal in zip(sources, placed, strict=True):
                _read_into(source, view[goal.offset : goal.offset + goal.nbytes])
            view.release()
    finally:
        os.close(handle)


def _read_into(source: Stored, view: memoryview) -> None:
    with Path(source.file).open("rb", buffering=0) as file:
        file.seek(source.offset)
        at = 0
        while at < len(view):
            got = file.readinto(view[at:])
            if not got:
                raise ValueError(f"{source.file} ended inside {source.name}")
            at += got
    view.release()
