"""Module subjects: a one-shot process runs the user's own `load()` and writes its state; the server never runs it itself."""

import os
import select
import signal
import socket
import traceback
from pathlib import Path

import msgspec

from reforward.engine.syscalls import PR_SET_PDEATHSIG, prctl
from reforward.engine.vault import WEIGHTS, Shelf, Vault, extent, place
from reforward.engine.wire import Stored

MOST_BYTES = 64 << 30


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the loader says: where it wrote each tensor, or why it did not."""

    tensors: tuple[Stored, ...] | None = None
    error: str = "the loader ended without an answer"


def load_module(vault: Vault, reference: str, control: socket.socket) -> Shelf:
    """Fill and seal the weights shelf from a module subject. Raises `ValueError` with the loader's traceback.

    If the client goes away meanwhile, the loader is ended and `ValueError` says so.
    """
    path = vault.writable(WEIGHTS, MOST_BYTES)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _load(reference, path, writer)
    os.close(writer)
    answered = reader in select.select([reader, control], [], [])[0]
    if not answered:
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read() if answered else b""
    os.waitpid(pid, 0)
    answer = msgspec.json.decode(text or b"{}", type=Answer)
    if answer.tensors is None:
        raise ValueError(f"loading {reference} failed: {answer.error}")
    return vault.seal(WEIGHTS, answer.tensors)


def _load(reference: str, path: Path, writer: int) -> None:
    answer = Answer()
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        answer = Answer(tensors=_write_state(reference, path))
    except BaseException:  # noqa: BLE001 - process boundary: the server turns it into an error for the user
        answer = Answer(error=traceback.format_exc()[-3000:])
    finally:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(msgspec.json.encode(answer))
        os._exit(0)


def _write_state(reference: str, path: Path) -> tuple[Stored, ...]:
    from reforward.engine.worker import to_bytes, write_at
    from reforward.runtime.module import export_state, load_subject

    state = export_state(load_subject(reference).load())
    plain = [
        Stored(name=n, dtype=str(t.dtype).removeprefix("torch."), shape=tuple(t.shape), offset=0, nbytes=t.nbytes)
        for n, t in sorted(state.items())
    ]
    placed = place(plain)
    handle = os.open(path, os.O_RDWR)
    try:
        os.ftruncate(handle, extent(placed))
        for tensor in placed:
            if tensor.nbytes:
                write_at(handle, to_bytes(state[tensor.name]), tensor.offset)
    finally:
        os.close(handle)
    return placed
