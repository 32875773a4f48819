"""The engine of a CPU: one server process that holds the weights, and a fresh worker for each launch of a candidate."""

import fcntl
import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from reforward.domain.calibration import Bandwidth
from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed
from reforward.domain.measurement import Memory
from reforward.domain.ports import Prepared
from reforward.domain.spec import Limits, ModelSpec
from reforward.domain.subject import Subject
from reforward.domain.target import Launch, Machine, Target
from reforward.engine import wire
from reforward.engine.bandwidth import read_bandwidth
from reforward.engine.builds import Builds
from reforward.engine.client import Denied, Server, Source
from reforward.engine.environment import SPINS
from reforward.engine.handle import Handle, LmHandle, ModuleHandle, Process

BUILD_MEMORY = 8 << 30
LOWEST = 19
"""Nice value of what builds."""
KEPT_PACKS = 3
"""Packed tensors of so many candidates stay in the vault; the least recently used go first."""
M = TypeVar("M", bound=wire.Message)


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
        self.packless: set[str] = set()
        """Keys of candidates that have a method called `pack` somewhere, but pack nothing."""
        self.server: Server | None = None
        self._starting = threading.RLock()
        opened = self._server().opened
        launch = Launch(
            threads=threads,
            pages=self._server().pages,
            device=source.card.place if source.card else "cpu",
            spins=SPINS,
            sandbox=opened.protections,
        )
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

    def build(self, candidate: Candidate) -> None:
        """The build stage alone, at the lowest priority, so that it may run beside a session."""
        self.builds.ensure(candidate, self._run_build)

    def start_lm(self, prepared: Prepared, *, depth: int, limits: Limits, oracle: bool = False) -> LmHandle:
        """A fresh worker on the resident weights."""
        assert self.spec is not None
        begun = time.perf_counter()
        self._touch(prepared)
        outbox = _outbox(limits.rows * self.spec.vocab * 4)
        try:
            process = self._spawn(prepared, outbox=outbox, memory=self._memory(prepared) * (3 if oracle else 1))
            shared = self._shared(prepared)
            handle = self._handle(process, prepared.candidate, shared, outbox, limits)
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

    def bandwidth(self) -> Bandwidth:
        """Of the machine's memory, with the threads of the target."""
        return read_bandwidth(self.threads)

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
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST)
        message = wire.Build(files=_files(candidate), out=str(out), threads=self.threads)
        try:
            self._ask_once(process, candidate, message, wire.Built, "build")
        except CandidateFailed as failure:
            stage = "source" if failure.stage == "source" else "build"
            raise CandidateFailed(stage, failure.reason, failure.log) from None

    def _pack(self, candidate: Candidate, artifacts: str) -> tuple[str, float]:
        """Key and seconds; empty and 0 if the tree does not pack, 0 seconds if the vault still has it."""
        if candidate.host != "lm" or not any("def pack(" in file.text for file in candidate.files):
            return "", 0.0
        key = candidate.id.rsplit(":", 1)[-1]
        self._server()
        if key in self.packless:
            return "", 0.0
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
        if not packed.tensors:
            self._server().ask(wire.Drop(key=key), wire.Done)
            self.packless.add(key)
            return "", time.perf_counter() - begun
        self._seal(key, packed)
        self.packs[key] = sum(tensor.nbytes for tensor in packed.tensors)
        return key, time.perf_counter() - begun

    def _seal(self, key: str, packed: wire.Packed) -> None:
        try:
            self._server().ask(wire.Seal(key=key, tensors=packed.tensors), wire.Done)
        except Denied as error:
            self._server().ask(wire.Drop(key=key), wire.Done)
            raise CandidateFailed("pack", f"the packed tensors were refused: {error}") from None

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
        with self._starting:
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

    def _handle(self, process: Process, candidate: Candidate, shared: Memory, outbox: int, limits: Limits) -> LmHandle:
        assert self.spec is not None
        return LmHandle(process, candidate, self.deadlines.step_s, shared, outbox, limits, self.spec.vocab)

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


def _outbox(nbytes: int) -> int:
    """A memory file that both sides map. Its size is sealed: a reader of a file that was cut off would be killed."""
    outbox = os.memfd_create("outbox", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(outbox, nbytes)
    fcntl.fcntl(outbox, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return outbox


def _files(candidate: Candidate) -> dict[str, str]:
    return {file.path: file.text for file in candidate.files}
