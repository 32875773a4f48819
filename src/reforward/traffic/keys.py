"""Secret keys of a capture: made once, kept beside the store and never in it."""

import hashlib
import os
import secrets
from pathlib import Path

from reforward.domain.errors import BadInput

BYTES = 32


def secret(path: Path) -> bytes:
    """The key in `path`, made if it is not there; readable by its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(BYTES))
    return _read(path)


def _read(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != BYTES:
        raise BadInput(f"{path} holds {len(key)} bytes and is no key of ours; delete it, and a new one is made")
    return key


def salt_id(key: bytes) -> str:
    """A name of the key, from which it cannot be found."""
    return hashlib.blake2b(b"name", key=key, digest_size=6).hexdigest()
