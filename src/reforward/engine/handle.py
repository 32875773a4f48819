"""The client's end of one worker: deadlines, kills, pauses, and what a death means."""

import math
import mmap
import os
import select
import signal
import socket
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed, EngineLost
from reforward.domain.measurement import Memory, Tensor
from reforward.domain.profile import Op
from reforward.domain.spec import Limits, Segment
from reforward.domain.subject import Tier
from reforward.engine import standstill, wire
from reforward.engine.footprint import private_bytes
from reforward.engine.text import plain

LOG_TAIL, REASON = 4096, 1000
"""Characters that are kept of what a worker printed, and of why it failed."""
GRACE_S = 5.0
WIDTHS = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "complex32": 4,
}  # fmt: skip
"""Types of tensors that may cross by value, and their bytes an element."""


class Process:
    """One confined process: socket, log, and the pipe on which its keeper reports its pid and its end."""

    def __init__(self, sock: socket.socket, log: int, status: int, start_s: float) -> None:
        self.sock, self.log, self.status = sock, log, status
        self.lost = False
        """The keeper went away without saying how the worker ended: the engine's server is gone."""
        self.pid = self._read_pid(start_s)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            raise EngineLost(f"a worker ended before it was asked anything; {self.log_tail()}") from None
        self.closed = False

    def _read_pid(self, start_s: float) -> int:
        line = self._line(start_s)
        if not line:
            raise EngineLost(f"a worker did not start within {start_s:.0f} s; {self.log_tail()}")
        return int(line)

    def _line(self, timeout_s: float) -> str:
        """One line of the status pipe; empty if the keeper is gone or silent."""
        line, until = b"", time.monotonic() + timeout_s
        while not line.endswith(b"\n"):
            if not select.select([self.status], [], [], max(0.0, until - time.monotonic()))[0]:
                return ""
            byte = os.read(self.status, 1)
            if not byte:
                self.lost = True
                return ""
            line += byte
        return line.decode().strip()

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if the process is gone."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def log_tail(self) -> str:
        """The last bytes that it printed."""
        size = os.fstat(self.log).st_size
        return plain(os.pread(self.log, LOG_TAIL, max(0, size - LOG_TAIL)).decode(errors="replace"))

    def end(self, wait_s: float) -> str:
        """Kill it and everything it started; how it ended by itself within `wait_s`, in words, or nothing if it did not."""
        early = self._line(wait_s)
        self.signal(signal.SIGKILL)
        if not early:
            self._line(GRACE_S)
        return describe_exit(int(early)) if early else ""

    def close(self) -> None:
        """End it and release descriptors; safe to call twice."""
        if self.closed:
            return
        self.closed = True
        self.signal(signal.SIGKILL)
        self._line(GRACE_S)
        self.sock.close()
        for descriptor in (self.log, self.status, self.pidfd):
            os.close(descriptor)


def describe_exit(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"killed by signal {number} ({signal.Signals(number).name})"
    return f"exited with code {os.WEXITSTATUS(status)} without answering"


class Handle:
    """A loaded worker. Implements what `LmWorker` and `ModuleWorker` share."""

    def __init__(self, process: Process, candidate: Candidate, step_s: float, shared: Memory) -> None:
        self.process, self.candidate, self.step_s, self.shared = process, candidate, step_s, shared
        self.watermark, self.layout, self.load_s, self.state_bytes, self.paused = "", "", 0.0, 0, False
        self.outbox_bytes = 0
        self.most = wire.SMALL_FRAME
        self.stood: standstill.Times = {}

    @property
    def pid(self) -> int:
        """See `domain.ports.Worker`."""
        return self.process.pid

    def load(self, message: wire.Message, begun: float, load_s: float) -> None:
        """Hand the candidate over and wait until it is ready."""
        ready = self.ask(message, wire.Ready, "load", load_s)
        self.watermark, self.layout, self.state_bytes = ready.watermark, plain(ready.layout), ready.state_bytes
        self.load_s = time.perf_counter() - begun

    def ask(self, message: wire.Message, expected: "type[wire.T]", stage: str, seconds: float) -> "wire.T":
        """One question, one answer, one deadline."""
        assert not self.paused, "asked a paused worker"
        self._alive()
        sock = self.process.sock
        until = time.monotonic() + seconds
        sock.settimeout(seconds)
        try:
            if select.select([sock], [], [], 0)[0] and sock.recv(1, socket.MSG_PEEK):
                self._dead(stage, "the worker speaks without being asked")
            wire.send(sock, message)
            reply = wire.receive(sock, wire.FROM_WORKER, until, self.most)
        except TimeoutError:
            self._dead(stage, f"no answer within {seconds:g} s")
        except wire.Gone:
            self._dead(stage, "closed its connection without answering", wait_s=1.0)
        except wire.Nonsense as error:
            self._dead(stage, f"the worker talks nonsense: {error}")
        if isinstance(reply, wire.Failed):
            tail = self.process.log_tail()
            self.close()
            log = f"{tail}\n{plain(reply.log)}".strip()[-LOG_TAIL:]
            raise CandidateFailed(reply.stage, plain(reply.reason)[:REASON], log)
        if not isinstance(reply, expected):
            self._dead(stage, f"the worker answered {type(reply).__name__} to {type(message).__name__}")
        return reply

    def _dead(self, stage: str, reason: str, *, wait_s: float = 0.0) -> NoReturn:
        """End it. `wait_s`: it seems to have ended by itself, and how is told within that time."""
        ended = self.process.end(wait_s)
        log, lost = self.process.log_tail(), self.process.lost
        self.close()
        if lost:
            raise EngineLost("the engine's server died with its workers; try again, it restarts")
        raise CandidateFailed(stage, ended if ended and wait_s else plain(reason)[:REASON], log)

    def pause(self) -> None:
        """Bring all its threads, and whatever it started, to a standstill."""
        self.paused = True
        with self._blamed():
            self.stood = standstill.stop(self.process.pid)

    def resume(self) -> None:
        """Let it go on, unless it did so by itself."""
        if self.paused:
            with self._blamed():
                standstill.check(self.process.pid, self.stood)
        standstill.go_on(self.process.pid)
        self.paused = False

    def _alive(self) -> None:
        if self.process.closed:
            raise CandidateFailed("run", "its worker is gone")

    @contextmanager
    def _blamed(self) -> Generator[None]:
        try:
            yield
        except standstill.Restless as error:
            self._dead("run", str(error))

    def memory(self) -> Memory:
        """From the kernel; see `footprint.private_bytes`.

        Includes what every worker inherits from the server (torch, about 100 MB), which is the same for all. A worker that
        is paused is held to it.
        """
        pid = self.process.pid
        if self.paused:
            with self._blamed():
                standstill.check(pid, self.stood)
        common = self.shared.weights + self.shared.packed + self.outbox_bytes
        others = [other for other in standstill.family(pid) if other != pid]
        state = self._state_in_pages()
        private = private_bytes(pid, others, common=common, outbox=self.outbox_bytes, state=state)
        return Memory(weights=self.shared.weights, packed=self.shared.packed, state=self.state_bytes, private=private)

    def _state_in_pages(self) -> int:
        """Bytes of its state among the process's own pages."""
        return self.state_bytes

    def profile(self, *, on: bool) -> tuple[Op, ...]:
        """See `domain.ports.Worker`."""
        made = self.ask(wire.Profile(on=on), wire.Profiled, "run", self.step_s)
        return tuple(Op(name=plain(name), calls=calls, self_s=micros / 1e6) for name, calls, micros in made.ops)

    def close(self) -> None:
        """End the process and everything it started."""
        self.process.close()


class LmHandle(Handle):
    """A worker of the `lm` host."""

    def __init__(
        self,
        process: Process,
        candidate: Candidate,
        step_s: float,
        shared: Memory,
        outbox: int,
        limits: Limits,
        vocab: int,
    ) -> None:
        super().__init__(process, candidate, step_s, shared)
        self.vocab, self.outbox_bytes = vocab, limits.rows * vocab * 4
        self.outbox = mmap.mmap(outbox, self.outbox_bytes)
        self.slots = limits.slots

    def step(self, tokens: Sequence[int], segments: Sequence[Segment], rows: Sequence[int], first: int) -> list[int]:
        """See `domain.ports.LmWorker`."""
        spans = tuple((segment.slot, segment.start, segment.length) for segment in segments)
        message = wire.Step(tokens=tuple(tokens), segments=spans, rows=tuple(rows), first=first)
        made = self._tokens(message, 1, len(rows))
        return list(made[0])

    def run(
        self, last: Sequence[int], slots: Sequence[int], positions: Sequence[int], steps: int, first: int
    ) -> list[list[int]]:
        """See `domain.ports.LmWorker`."""
        message = wire.Run(last=tuple(last), slots=tuple(slots), positions=tuple(positions), steps=steps, first=first)
        return [list(step) for step in self._tokens(message, steps, len(last))]

    def save(self, slot: int) -> bytearray:
        """See `domain.ports.LmWorker`."""
        held = bytearray(self.state_bytes // self.slots)
        for at in range(0, len(held), self.outbox_bytes):
            count = min(self.outbox_bytes, len(held) - at)
            self.ask(wire.Save(slot=slot, at=at, count=count), wire.Moved, "run", self.step_s)
            held[at : at + count] = memoryview(self.outbox)[:count]
        return held

    def restore(self, slot: int, held: bytearray) -> None:
        """See `domain.ports.LmWorker`."""
        self._alive()
        for at in range(0, len(held), self.outbox_bytes):
            piece = memoryview(held)[at : at + self.outbox_bytes]
            self.outbox[: len(piece)] = piece
            self.ask(wire.Restore(slot=slot, at=at, count=len(piece)), wire.Moved, "run", self.step_s)

    def _tokens(self, message: wire.Message, steps: int, width: int) -> tuple[tuple[int, ...], ...]:
        made = self.ask(message, wire.Tokens, "run", self.step_s).steps
        if len(made) != steps or any(len(step) != width for step in made):
            self._dead("run", f"the worker sent {[len(step) for step in made[:9]]} tokens, not {steps} times {width}")
        unknown = [token for step in made for token in step if not 0 <= token < self.vocab]
        if unknown:
            self._dead("run", f"the worker sent token {unknown[0]}, and the vocabulary has {self.vocab}")
        return made

    def rows(self, first: int, count: int) -> Tensor:
        """See `domain.ports.LmWorker`."""
        self._alive()
        width = self.vocab * 4
        data = self.outbox[first * width : (first + count) * width]
        return Tensor(dtype="float32", shape=(count, self.vocab), data=data)

    def close(self) -> None:
        """End the process, then unmap the outbox."""
        super().close()
        self.outbox.close()


class ModuleHandle(Handle):
    """A worker of the `module` host."""

    def __init__(self, process: Process, candidate: Candidate, step_s: float, shared: Memory) -> None:
        super().__init__(process, candidate, step_s, shared)
        self.most = wire.MAX_FRAME

    def draw(self, seed: int, tier: Tier) -> tuple[Tensor, ...]:
        """See `domain.ports.ModuleWorker`."""
        drawn = self.ask(wire.Draw(seed=seed, tier=tier), wire.Drawn, "run", self.step_s)
        return tuple(self._tensor(f"input {place}", data) for place, data in enumerate(drawn.inputs))

    def call(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """See `domain.ports.ModuleWorker`."""
        data = tuple(wire.TensorData(dtype=t.dtype, shape=t.shape, data=bytes(t.data)) for t in inputs)
        called = self.ask(wire.Call(inputs=data), wire.Called, "run", self.step_s)
        return {plain(place): self._tensor(place, data) for place, data in called.outputs.items()}

    def _tensor(self, place: str, data: wire.TensorData) -> Tensor:
        if data.dtype not in WIDTHS or math.prod(data.shape) * WIDTHS[data.dtype] != len(data.data):
            about = f"{len(data.data):,} bytes as {data.dtype!r} of shape {data.shape}"
            self._dead("run", f"the worker talks nonsense: {place} has {about}")
        return Tensor(dtype=data.dtype, shape=data.shape, data=data.data)
