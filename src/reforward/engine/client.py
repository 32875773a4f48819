"""The client's end of the server process: starts it, asks it, notices its death."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from reforward.domain.errors import EngineLost
from reforward.domain.target import PageKind
from reforward.engine import wire
from reforward.engine.cuda.card import Card
from reforward.engine.environment import environment
from reforward.engine.handle import Process
from reforward.engine.leftovers import make, remove
from reforward.engine.wire import Stored

OPEN_S = 900.0
"""Deadline for loading the weights, or what a candidate packed, which may be as much."""
START_S = 20.0
"""Deadline from a spawn request to a live process."""
M = TypeVar("M", bound=wire.Message)


class Denied(EngineLost):
    """The server is alive and refuses the request."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the weights come from: tensors on disk, or a module subject's own `load()`."""

    tensors: tuple[Stored, ...] = ()
    module: str = ""
    readable: tuple[str, ...] = ()
    """Folders that workers may read besides the system and Python."""
    card: Card | None = None
    """The device that holds them; None for the host."""


class Server:
    """The client's end of one server process."""

    def __init__(self, source: Source, threads: int) -> None:
        ours, theirs = socket.socketpair()
        self.folder, self.held = make(Path(tempfile.gettempdir()), "reforward-")
        # A module subject may lie in the caller's folder; for a checkpoint that folder must not shadow anything.
        python = [sys.executable] if source.module else [sys.executable, "-P"]
        with self._log.open("wb") as log, theirs:
            self.process = subprocess.Popen(
                [*python, "-m", "reforward.engine.server", str(theirs.fileno()), str(self.folder)],
                pass_fds=[theirs.fileno()],
                env=environment(threads) | {"TMPDIR": str(self.folder / "scratch")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.sock, self.turn = ours, threading.Lock()
        message = wire.Open(tensors=source.tensors, module=source.module, readable=source.readable, card=source.card)
        try:
            self.opened = self.ask(message, wire.Opened)
        except Denied as error:
            self.close()
            raise EngineLost(f"the weights cannot be loaded: {error}") from None
        self.pages: PageKind = "huge" if self.opened.pages == "huge" else "4k"

    def ask(self, message: wire.Message, expected: type[M], descriptors: Sequence[int] = ()) -> M:
        """One request, one answer; a dead or silent server raises `EngineLost`, one that says no `Denied`. From any thread."""
        with self.turn:
            return self._ask(message, expected, descriptors)

    def _ask(self, message: wire.Message, expected: type[M], descriptors: Sequence[int]) -> M:
        self.sock.settimeout(OPEN_S if isinstance(message, wire.Open | wire.Seal) else START_S)
        try:
            wire.send(self.sock, message, tuple(descriptors))
            reply = wire.receive(self.sock, wire.FROM_SERVER)
        except (wire.Gone, wire.Nonsense, TimeoutError, OSError) as error:
            tail = self.tail()
            self.close()
            raise EngineLost(
                f"the engine's server is gone ({error}); try again, it restarts. Its log: {tail}"
            ) from None
        if not isinstance(reply, expected):
            reason = reply.reason if isinstance(reply, wire.Refused) else type(reply).__name__
            raise Denied(f"{type(message).__name__}: {reason}")
        return reply

    def spawn(self, message: wire.Spawn, outbox: int) -> Process:
        """A confined process, waiting for its first message."""
        ours, theirs = socket.socketpair()
        log = os.memfd_create("log")
        reader, writer = os.pipe()
        descriptors = [theirs.fileno(), log, writer, *([outbox] if outbox >= 0 else [])]
        try:
            self.ask(message, wire.Done, descriptors)
        except EngineLost:
            ours.close()
            os.close(log)
            os.close(reader)
            raise
        finally:
            theirs.close()
            os.close(writer)
        return Process(ours, log, reader, START_S)

    def alive(self) -> bool:
        """The process has not ended."""
        return self.process.poll() is None

    def tail(self) -> str:
        """The last lines of its log."""
        with contextlib.suppress(OSError):
            return self._log.read_text(errors="replace")[-2000:]
        return ""

    def close(self) -> None:
        """End it; parent-death signals end the workers. Its folder is empty once its mounts are gone with it."""
        self.sock.close()
        self.process.kill()
        self.process.wait()
        if self.held >= 0:
            os.close(self.held)
            self.held = -1
        remove(self.folder)

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"
