"""The engine of a CPU: one server process that holds the weights, and a fresh worker for each launch of a candidate."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed, EngineLost
from reforward.domain.measurement import Memory
from reforward.domain.ports import Prepared
from reforward.domain.spec import Limits, ModelSpec
from reforward.domain.subject import Subject
from reforward.domain.target import Launch, Machine, PageKind, Target
from reforward.engine import wire
from reforward.engine.builds import Builds
from reforward.engine.handle import Handle, LmHandle, ModuleHandle, Process
from reforward.engine.wire import Stored

OPEN_S = 900.0
"""Deadline for loading the weights."""
START_S = 20.0
"""Deadline from a spawn request to a live process."""
BUILD_MEMORY = 8 << 30
KEPT_PACKS = 3
"""Packed tensors of so many candidates stay in the vault; the least recently used go first."""
M = TypeVar("M", bound=wire.Message)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the weights come from: tensors on disk, or a module subject's own `load()`."""

    tensors: tuple[Stored, ...] = ()
    module: str = ""
    readable: tuple[str, ...] = ()
    """Folders that workers may read besides the system and Python."""


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Seconds after which a silent worker is ended."""

    load_s: float = 60.0
    step_s: float = 60.0
    build_s: float = 600.0


class CpuEngine:
    """Implements `domain.ports.Engine`. Start it once; it loads the weights at the first use and after its server died."""

    def __init__(
        self,
        source: Source,
        subject: Subject,
        spec: ModelSpec | None,
        *,
        threads: int,
        machine: Machine,
        software: tuple[str, ...],
        cache: Path,
        deadlines: Deadlines | None = None,
        workspace_bytes: int = 4 << 30,
    ) -> None:
        self.source, self.subject, self.spec, self.threads = source, subject, spec, threads
        self.deadlines, self.workspace_bytes = deadlines or Deadlines(), workspace_bytes
        self.builds = Builds(cache / "builds", machine, software)
        self.packs: dict[str, int] = {}
        self.server: Server | None = None
        launch = Launch(threads=threads, pages=self._server().pages, sandbox=self._server().opened.protections)
        self.target = Target(subject=subject.id, machine=machine, software=software, launch=launch)

    def prepare(self, candidate: Candidate) -> Prepared:
        """Build and pack, from cache if possible."""
        artifacts = self.builds.ensure(candidate, self._run_build)
        key, seconds = self._pack(candidate, artifacts.folder)
        return Prepared(
            candidate=candidate,
            artifacts=artifacts.folder,
            build_s=artifacts.seconds,
            packed=key,
            pack_s=seconds,
            packed_bytes=self.packs.get(key, 0),
        )

    def start_lm(self, prepared: Prepared, *, depth: int, limits: Limits, oracle: bool = False) -> LmHandle:
        """A fresh worker on the resident weights."""
        assert self.spec is not None
        begun = time.perf_counter()
        self._touch(prepared)
        outbox = os.memfd_create("outbox")
        try:
            os.ftruncate(outbox, limits.rows * self.spec.vocab * 4)
            process = self._spawn(prepared, outbox=outbox, memory=self._memory(prepared) * (3 if oracle else 1))
            shared = self._shared(prepared)
            handle = LmHandle(
                process, prepared.candidate, self.deadlines.step_s, shared, outbox, limits, self.spec.vocab
            )
        finally:
            os.close(outbox)
        handle.load(
            self._load_message(prepared, depth=depth, limits=limits, oracle=oracle), begun, self.deadlines.load_s
        )
        return handle

    def start_module(self, prepared: Prepared) -> ModuleHandle:
        """A fresh worker with the candidate's class on the resident weights."""
        begun = time.perf_counter()
        process = self._spawn(prepared, memory=self._memory(prepared))
        handle = ModuleHandle(process, prepared.candidate, self.deadlines.step_s, self._shared(prepared))
        message = wire.LoadModule(
            files=_files(prepared.candidate),
            entry=prepared.candidate.entry,
            module=self.source.module,
            artifacts=prepared.artifacts,
            threads=self.threads,
        )
        handle.load(message, begun, self.deadlines.load_s)
        return handle

    def close(self) -> None:
        """End the server; with it go all workers and the weights."""
        if self.server is not None:
            self.server.close()
            self.server = None
        self.packs.clear()

    # --- building and packing ---

    def _run_build(self, candidate: Candidate, out: Path) -> None:
        blank = Prepared(candidate=candidate, artifacts="", build_s=0, packed="", pack_s=0, packed_bytes=0)
        process = self._spawn(blank, writable=str(out), memory=BUILD_MEMORY)
        message = wire.Build(files=_files(candidate), out=str(out))
        self._ask_once(process, candidate, message, wire.Built, "build")

    def _pack(self, candidate: Candidate, artifacts: str) -> tuple[str, float]:
        """Key and seconds; empty and 0 if the tree does not pack, 0 seconds if the vault still has it."""
        entry = candidate.text_of(candidate.entry_file) or ""
        if candidate.host != "lm" or "def pack(" not in entry:
            return "", 0.0
        key = candidate.id.rsplit(":", 1)[-1]
        self._server()
        if key in self.packs:
            return key, 0.0
        self._evict()
        begun = time.perf_counter()
        blank = Prepared(candidate=candidate, artifacts=artifacts, build_s=0, packed="", pack_s=0, packed_bytes=0)
        process = self._spawn(blank, pack_into=key, memory=self._pack_memory())
        message = self._load_message(
            blank, depth=0, limits=Limits(slots=1, length=1, tokens=1), oracle=False, pack=True
        )
        try:
            packed = self._ask_once(process, candidate, message, wire.Packed, "pack")
        except CandidateFailed:
            self._server().ask(wire.Drop(key=key), wire.Done)
            raise
        self._server().ask(wire.Seal(key=key, tensors=packed.tensors), wire.Done)
        self.packs[key] = sum(tensor.nbytes for tensor in packed.tensors)
        return key, time.perf_counter() - begun

    def _ask_once(
        self, process: Process, candidate: Candidate, message: wire.Message, expected: type[M], stage: str
    ) -> M:
        handle = Handle(process, candidate, self.deadlines.build_s, self._shared(None))
        try:
            return handle.ask(message, expected, stage, self.deadlines.build_s)
        finally:
            handle.close()

    def _evict(self) -> None:
        while len(self.packs) >= KEPT_PACKS:
            key = next(iter(self.packs))
            self._server().ask(wire.Drop(key=key), wire.Done)
            del self.packs[key]

    def _touch(self, prepared: Prepared) -> None:
        """Make sure that the packed tensors are in the vault, and move them to the end of the queue."""
        if prepared.packed:
            self._pack(prepared.candidate, prepared.artifacts)
            self.packs[prepared.packed] = self.packs.pop(prepared.packed)

    # --- processes ---

    def _server(self) -> "Server":
        if self.server is None or not self.server.alive():
            self.close()
            self.server = Server(self.source, self.threads)
        return self.server

    def _spawn(
        self, prepared: Prepared, *, memory: int, outbox: int = -1, pack_into: str = "", writable: str = ""
    ) -> Process:
        message = wire.Spawn(
            packed=prepared.packed,
            pack_into=pack_into,
            writable=writable,
            readable=prepared.artifacts,
            memory_bytes=memory,
        )
        return self._server().spawn(message, outbox)

    def _memory(self, prepared: Prepared) -> int:
        return self.workspace_bytes + prepared.packed_bytes // 4

    def _pack_memory(self) -> int:
        """A pack worker may hold a few copies of the weights while it works."""
        return self.workspace_bytes + 4 * self._server().opened.nbytes

    def _shared(self, prepared: Prepared | None) -> Memory:
        packed = prepared.packed_bytes if prepared else 0
        return Memory(weights=self._server().opened.nbytes, packed=packed, state=0, private=0)

    def _load_message(
        self, prepared: Prepared, *, depth: int, limits: Limits, oracle: bool, pack: bool = False
    ) -> wire.LoadLm:
        assert self.spec is not None
        return wire.LoadLm(
            files=_files(prepared.candidate),
            entry=prepared.candidate.entry,
            spec=asdict(self.spec),
            dtype=self.subject.dtype,
            depth=depth,
            limits=asdict(limits),
            artifacts=prepared.artifacts,
            oracle=oracle,
            threads=self.threads,
            pack=pack,
        )


def _files(candidate: Candidate) -> dict[str, str]:
    return {file.path: file.text for file in candidate.files}


class Server:
    """The client's end of one server process."""

    def __init__(self, source: Source, threads: int) -> None:
        ours, theirs = socket.socketpair()
        self.log = Path(tempfile.mkdtemp(prefix="reforward-log-")) / "server.log"
        with self.log.open("wb") as log, theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reforward.engine.server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment(threads),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.sock = ours
        self.opened = self.ask(
            wire.Open(tensors=source.tensors, module=source.module, readable=source.readable), wire.Opened
        )
        self.pages: PageKind = "huge" if self.opened.pages == "huge" else "4k"

    def ask(self, message: wire.Message, expected: type[M], descriptors: Sequence[int] = ()) -> M:
        """One request, one answer; a dead or silent server raises `EngineLost`."""
        self.sock.settimeout(OPEN_S if isinstance(message, wire.Open) else START_S)
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
            raise EngineLost(f"the engine's server refused {type(message).__name__}: {reason}")
        return reply

    def spawn(self, message: wire.Spawn, outbox: int) -> Process:
        """A confined process, waiting for its first message."""
        ours, theirs = socket.socketpair()
        log = os.memfd_create("log")
        reader, writer = os.pipe()
        descriptors = [theirs.fileno(), log, writer, *([outbox] if outbox >= 0 else [])]
        release: list[Callable[[], None]] = [theirs.close, lambda: os.close(writer)]
        try:
            self.ask(message, wire.Done, descriptors)
        finally:
            for close in release:
                close()
        return Process(ours, log, reader, START_S)

    def alive(self) -> bool:
        """The process has not ended."""
        return self.process.poll() is None

    def tail(self) -> str:
        """The last lines of its log."""
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace")[-2000:]
        return ""

    def close(self) -> None:
        """End it; parent-death signals end the workers."""
        self.sock.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.log.parent, ignore_errors=True)


def environment(threads: int) -> dict[str, str]:
    """The scrubbed environment of the server and all workers: equal for all arms."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",
        "GOMP_SPINCOUNT": "10000",
    }
