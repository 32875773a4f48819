"""Content-addressed files: `ab/cdef...` holds the bytes whose hash is `abcdef...`."""

import os
import tempfile
from pathlib import Path

from reforward.domain.errors import BadInput, LedgerCorrupt
from reforward.domain.record import content_hash


class Blobs:
    """Files below one folder. A blob that exists is complete: it gets its name after its bytes are on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, data: bytes) -> str:
        """Store bytes; returns their hash."""
        key = content_hash(data)
        path = self._path(key)
        if path.exists():
            return key
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).rename(path)
        _sync_folder(path.parent)
        return key

    def get(self, key: str) -> bytes:
        """The bytes of a hash; `BadInput` if they are not here."""
        path = self._path(key)
        if not path.is_file():
            raise BadInput(f"blob {key!r} is not in {self.folder}")
        return path.read_bytes()

    def verify(self) -> int:
        """Hash every file again; returns how many there are."""
        paths = [path for path in self.folder.glob("??/*") if not path.name.startswith(".")]
        for path in paths:
            key = path.parent.name + path.name
            if content_hash(path.read_bytes()) != key:
                raise LedgerCorrupt(f"blob {key} has other content than its name says")
        return len(paths)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]


def _sync_folder(folder: Path) -> None:
    """A name is on disk only after its folder is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
