"""Module subjects: a one-shot process runs the user's own `load()` and writes its state; the server never runs it itself."""

import json
import os
import traceback
from pathlib import Path

from reforward.engine.vault import WEIGHTS, Shelf, Vault, extent, place
from reforward.engine.wire import Stored

MOST_BYTES = 64 << 30


def load_module(vault: Vault, reference: str) -> Shelf:
    """Fill and seal the weights shelf from a module subject. Raises `ValueError` with the loader's traceback."""
    path = vault.writable(WEIGHTS, MOST_BYTES)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _load(reference, path, writer)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    index = json.loads(text or '{"error": "the loader ended without an answer"}')
    if "error" in index:
        raise ValueError(f"loading {reference} failed: {index['error']}")
    return vault.seal(WEIGHTS, tuple(Stored(**{**item, "shape": tuple(item["shape"])}) for item in index["tensors"]))


def _load(reference: str, path: Path, writer: int) -> None:
    answer: dict[str, object] = {}
    try:
        answer = {"tensors": _write_state(reference, path)}
    except BaseException:  # noqa: BLE001 - process boundary: the server turns it into an error for the user
        answer = {"error": traceback.format_exc()[-3000:]}
    finally:
        with os.fdopen(writer, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)


def _write_state(reference: str, path: Path) -> list[dict[str, object]]:
    from reforward.engine.worker import to_bytes, write_at
    from reforward.runtime.module import export_state, load_subject

    state = export_state(load_subject(reference).load())
    plain = [
        Stored(name=n, dtype=str(t.dtype).removeprefix("torch."), shape=tuple(t.shape), offset=0, nbytes=t.nbytes)
        for n, t in sorted(state.items())
    ]
    placed = place(plain)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(handle, extent(placed))
        for tensor in placed:
            if tensor.nbytes:
                write_at(handle, to_bytes(state[tensor.name]), tensor.offset)
    finally:
        os.close(handle)
    return [
        {"name": t.name, "dtype": t.dtype, "shape": t.shape, "offset": t.offset, "nbytes": t.nbytes} for t in placed
    ]
