"""Weights in memory once: one file on a private huge-page tmpfs, filled byte by byte, then read-only for everybody.

Runs in the server, in its own mount namespace; never runs candidate code and never a torch operation. A worker maps the file
`MAP_SHARED` and read-only from a file system that is mounted read-only, so no mapping can be made writable, not even by root.
Where mount namespaces are refused, each is a memory file with seals against writing instead, and pages are 4 KiB.
"""

import fcntl
import math
import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reforward.engine import syscalls
from reforward.engine.wire import Stored

ALIGN = 64
HUGE = 2 << 20
WEIGHTS = "weights"
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


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
    """The shelves of one server. `private`: this process has a mount namespace of its own."""

    def __init__(self, root: Path, *, private: bool) -> None:
        self.root, self.private = root, private
        self.shelves: dict[str, Shelf] = {}
        self.memory_files: dict[str, int] = {}
        self.pages = "4k"

    def load(self, tensors: Sequence[Stored]) -> Shelf:
        """Read checkpoint tensors into place."""
        placed = place(tensors)
        _fill(self.writable(WEIGHTS, extent(placed)), tensors, placed)
        return self.seal(WEIGHTS, placed)

    def writable(self, key: str, nbytes: int) -> Path:
        """A new, empty file of at most `nbytes`, to be filled by a trusted loader or a pack worker, before `seal`."""
        if not self.private:
            self.memory_files[key] = os.memfd_create(key, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
            return Path(f"/proc/self/fd/{self.memory_files[key]}")
        folder = self.root / key
        folder.mkdir(mode=0o755)
        _mount_shelf(folder, -(-(nbytes + 2 * HUGE) // HUGE) * HUGE)
        (folder / "data").touch(mode=0o600)
        return folder / "data"

    def seal(self, key: str, tensors: tuple[Stored, ...]) -> Shelf:
        """Make a shelf read-only. Fails if anybody can still write to it, or if a tensor lies outside the file."""
        path = self._path(key)
        size = path.stat().st_size
        if any(t.offset % ALIGN or t.offset < 0 or not 0 <= t.nbytes <= size - t.offset for t in tensors):
            raise ValueError(f"a tensor of {key!r} lies outside its file of {size:,} bytes")
        if size > extent(tensors):
            raise ValueError(f"the file of {key!r} has {size:,} bytes, more than its tensors")
        if self.private:
            path.chmod(0o444)
            syscalls.mount("shelf", str(path.parent), "none", syscalls.MS_REMOUNT | syscalls.MS_RDONLY)
        else:
            fcntl.fcntl(self.memory_files[key], fcntl.F_ADD_SEALS, SEALS)
        self.shelves[key] = Shelf(path=path, tensors=tensors)
        if key == WEIGHTS:
            self.pages = _page_kind(path)
        return self.shelves[key]

    def drop(self, key: str) -> None:
        """Forget a shelf; its memory is freed when the last mapping ends."""
        self.shelves.pop(key, None)
        if key in self.memory_files:
            os.close(self.memory_files.pop(key))
        elif (self.root / key).is_dir():
            syscalls.unmount(str(self.root / key))
            (self.root / key).rmdir()

    def close(self) -> None:
        """Drop all shelves."""
        for key in tuple(self.shelves):
            self.drop(key)

    def _path(self, key: str) -> Path:
        return self.root / key / "data" if self.private else Path(f"/proc/self/fd/{self.memory_files[key]}")


def _mount_shelf(folder: Path, size: int) -> None:
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    try:
        syscalls.mount("shelf", str(folder), "tmpfs", flags, f"size={size},mode=755,huge=always")
    except OSError:
        syscalls.mount("shelf", str(folder), "tmpfs", flags, f"size={size},mode=755")


def _page_kind(path: Path) -> str:
    """Map the file, touch its first byte, and ask the kernel which page that gave."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        assert mapping[0] >= 0
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    huge = sum(int(line.split()[1]) for line in lines if line.startswith("ShmemPmdMapped:"))
    return "huge" if huge else "4k"


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
    handle = os.open(path, os.O_RDWR)
    try:
        os.ftruncate(handle, size)
        with mmap.mmap(handle, size) as target, memoryview(target) as view:
            for source, goal in zip(sources, placed, strict=True):
                with view[goal.offset : goal.offset + goal.nbytes] as part:
                    _read_into(source, part)
    finally:
        os.close(handle)


def _read_into(source: Stored, view: memoryview) -> None:
    with Path(source.file).open("rb", buffering=0) as file:
        file.seek(source.offset)
        at = 0
        while at < len(view):
            with view[at:] as rest:
                got = file.readinto(rest)
            if not got:
                raise ValueError(f"{source.file} ended inside {source.name}")
            at += got
