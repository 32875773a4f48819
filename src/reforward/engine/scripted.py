"""An engine without processes: a tiny numpy decoder under a virtual clock.

The second implementation of `Engine`. Logits are really computed (so rounding is real), time is drawn from a stated
distribution (so thousands of sessions take seconds): it is what the statistics of measure and judge are tested with.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reforward.domain.calibration import Bandwidth
from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import CandidateFailed
from reforward.domain.measurement import Memory, Stage, Tensor
from reforward.domain.ports import Prepared
from reforward.domain.profile import Op
from reforward.domain.spec import Limits, ModelSpec, Segment
from reforward.domain.subject import Subject, Tier
from reforward.domain.target import Launch, Machine, Target

Array = NDArray[np.floating]
Twist = Callable[[Array, Array | None, np.random.Generator], Array]
"""(rows, rows of the call before or None, generator) -> rows: how a candidate departs from the model."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long things take. Noise is log-normal; its sizes are standard deviations of the logarithm."""

    step_s: float = 0.01
    token_s: float = 0.0005
    load_s: float = 0.05
    launch_noise: float = 0.01
    """Drawn once per worker."""
    step_noise: float = 0.02
    """Drawn per call."""
    spikes: float = 0.0
    """Share of calls that are disturbed and take ten times as long."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """What a candidate does when it is run."""

    pace: Pace = Pace()
    halves: bool = False
    """Sum each product in two halves: the same mathematics in another order."""
    twist: Twist | None = None
    fails: tuple[Stage, int] | None = None
    """(stage, calls answered before): raise `CandidateFailed` there; `load` fails at the start of its n-th worker."""
    watermark: str = ""
    """What to claim instead of the candidate's own id."""
    private: int = 1 << 20


class VirtualClock:
    """Nanoseconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        """Now, like `time.perf_counter_ns`."""
        return self.now_ns

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += round(seconds * 1e9)


class TinyModel:
    """A recurrent decoder with real rounding: h' = tanh(A h + e[token]), logits = U h, `depth` times per token."""

    def __init__(self, spec: ModelSpec, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.embed = draw.standard_normal((spec.vocab, spec.hidden)).astype(np.float32)
        self.mix = (draw.standard_normal((spec.hidden, spec.hidden)) / math.sqrt(spec.hidden)).astype(np.float32)
        self.head = (draw.standard_normal((spec.vocab, spec.hidden)) / math.sqrt(spec.hidden) * 4).astype(np.float32)

    def advance(self, hidden: Array, token: int, depth: int, dtype: type[np.floating], halves: bool) -> Array:
        """The state after one more token."""
        embed, mix = self.embed[token].astype(dtype), self.mix.astype(dtype)
        for _ in range(depth):
            hidden = np.tanh(_product(mix, hidden, halves) + embed)
        return hidden

    def logits(self, hidden: Array, dtype: type[np.floating], halves: bool) -> Array:
        """One row, fp32."""
        return _product(self.head.astype(dtype), hidden, halves).astype(np.float32)


def _product(matrix: Array, vector: Array, halves: bool) -> Array:
    if not halves:
        return matrix @ vector
    middle = len(vector) // 2
    return matrix[:, :middle] @ vector[:middle] + matrix[:, middle:] @ vector[middle:]


class ScriptedWorker:
    """Common to both hosts: the clock, the failures, the memory."""

    def __init__(self, engine: "ScriptedEngine", candidate: Candidate, role: Role) -> None:
        self.engine, self.candidate, self.role = engine, candidate, role
        self.watermark = role.watermark or candidate.id
        self.calls = self.pid = 0
        self.noting = (0, 0)
        self.paused = self.closed = False
        self.factor = math.exp(role.pace.launch_noise * engine.draw.standard_normal())
        engine.clock.advance(role.pace.load_s)
        self.load_s = role.pace.load_s
        self.last: Array | None = None

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    def memory(self) -> Memory:
        return Memory(weights=self.engine.weights_bytes, packed=0, state=4096, private=self.role.private)

    def profile(self, *, on: bool) -> tuple[Op, ...]:
        """All the time of all calls since it was started."""
        begun, self.noting = self.noting, (self.calls, self.engine.clock.now_ns)
        if on:
            return ()
        seconds = (self.engine.clock.now_ns - begun[1]) / 1e9
        return (Op(name="scripted", calls=self.calls - begun[0], self_s=seconds),)

    def work(self, tokens: int) -> None:
        """Spend the time of one call, or fail."""
        assert not self.paused, "a paused worker was called"
        assert not self.closed, "a closed worker was called"
        if self.role.fails and self.role.fails[0] != "load" and self.calls >= self.role.fails[1]:
            raise CandidateFailed(self.role.fails[0], "scripted failure", "last line of its log")
        self.calls += 1
        pace, draw = self.role.pace, self.engine.draw
        seconds = (
            (pace.step_s + pace.token_s * tokens) * self.factor * math.exp(pace.step_noise * draw.standard_normal())
        )
        self.engine.clock.advance(seconds * (10 if draw.random() < pace.spikes else 1))

    def twisted(self, rows: Array) -> Array:
        """What the candidate delivers for these rows."""
        before, self.last = self.last, rows
        return rows if self.role.twist is None else self.role.twist(rows, before, self.engine.draw)


class ScriptedLm(ScriptedWorker):
    """An `LmWorker` over `TinyModel`."""

    def __init__(
        self, engine: "ScriptedEngine", candidate: Candidate, role: Role, *, depth: int, limits: Limits, oracle: bool
    ) -> None:
        super().__init__(engine, candidate, role)
        assert engine.spec is not None, "start_lm on a module subject"
        self.depth, self.limits = depth, limits
        self.dtype = np.float64 if oracle else np.float32
        self.hidden = np.zeros((limits.slots, engine.spec.hidden), self.dtype)
        self.layout = f"hidden {self.hidden.shape[1:]} {self.hidden.dtype}"
        self.outbox = np.zeros((limits.rows, engine.spec.vocab), np.float32)

    def step(self, tokens: Sequence[int], segments: Sequence[Segment], rows: Sequence[int], first: int) -> list[int]:
        self.work(len(tokens))
        wanted, made, at = set(rows), list[Array](), 0
        for segment in segments:
            hidden = self.hidden[segment.slot] * (segment.start > 0)
            for index in range(at, at + segment.length):
                hidden = self.engine.model.advance(hidden, tokens[index], self.depth, self.dtype, self.role.halves)
                if index in wanted:
                    made.append(self.engine.model.logits(hidden, self.dtype, self.role.halves))
            self.hidden[segment.slot] = hidden
            at += segment.length
        return self._deliver(made, first)

    def run(
        self, last: Sequence[int], slots: Sequence[int], positions: Sequence[int], steps: int, first: int
    ) -> list[list[int]]:
        made: list[list[int]] = []
        tokens = list(last)
        for step in range(steps):
            segments = [Segment(slot=s, start=p + step, length=1) for s, p in zip(slots, positions, strict=True)]
            tokens = self.step(tokens, segments, range(len(tokens)), first + step * len(tokens))
            made.append(tokens)
        return made

    def rows(self, first: int, count: int) -> Tensor:
        part = self.outbox[first : first + count]
        return Tensor(dtype="float32", shape=part.shape, data=part.tobytes())

    def save(self, slot: int) -> bytearray:
        return bytearray(self.hidden[slot].tobytes())

    def restore(self, slot: int, held: bytearray) -> None:
        self.hidden[slot] = np.frombuffer(held, self.dtype)

    def _deliver(self, made: Sequence[Array], first: int) -> list[int]:
        if not made:
            return []
        rows = self.twisted(np.stack(made))
        self.outbox[first : first + len(rows)] = rows
        return [int(token) for token in rows.argmax(axis=1)]


class ScriptedModule(ScriptedWorker):
    """A `ModuleWorker` that maps `x[4, 64]` to `tanh(x A)`."""

    def draw(self, seed: int, tier: Tier) -> tuple[Tensor, ...]:
        values = np.random.default_rng(seed).standard_normal((4, 64)).astype(np.float32)
        return (Tensor(dtype="float32", shape=values.shape, data=values.tobytes()),)

    def call(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        self.work(4)
        values = np.frombuffer(inputs[0].data, np.float32).reshape(inputs[0].shape)
        mix = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
        made = self.twisted(np.tanh(_product(mix.T, values.T, self.role.halves).T))
        return {"output": Tensor(dtype=str(made.dtype), shape=made.shape, data=made.tobytes())}


class ScriptedEngine:
    """Implements `Engine`. Candidates that have no role of their own behave like the stock."""

    weights_bytes = 1 << 24

    def __init__(
        self,
        subject: Subject,
        spec: ModelSpec | None,
        roles: Mapping[str, Role],
        *,
        stock: Role | None = None,
        seed: int = 0,
    ) -> None:
        self.subject, self.spec, self.roles = subject, spec, roles
        self.default = stock or Role()
        self.clock = VirtualClock()
        self.draw = np.random.default_rng(seed)
        self.model = TinyModel(spec) if spec else TinyModel(_TINY)
        self.started: list[ScriptedWorker] = []
        machine = Machine(cpu="scripted", cores=1, isa="generic", memory_gib=1)
        launch = Launch(threads=1, pages="4k")
        self.target = Target(subject=subject.id, machine=machine, software=(f"numpy=={np.__version__}",), launch=launch)

    def build(self, candidate: Candidate) -> None:
        """Nothing to build."""

    def prepare(self, candidate: Candidate) -> Prepared:
        """Nothing to build; fails if the role says so."""
        role = self.roles.get(candidate.id, self.default)
        if role.fails and role.fails[0] in ("source", "build", "pack"):
            raise CandidateFailed(role.fails[0], "scripted failure", "last line of its log")
        return Prepared(candidate=candidate, artifacts="", build_s=0.0, packed="", pack_s=0.0, packed_bytes=0)

    def start_lm(self, prepared: Prepared, *, depth: int, limits: Limits, oracle: bool = False) -> ScriptedLm:
        """A fresh worker; the oracle computes in float64."""
        role = self._role(prepared.candidate)
        worker = ScriptedLm(self, prepared.candidate, role, depth=depth, limits=limits, oracle=oracle)
        self.started.append(worker)
        return worker

    def start_module(self, prepared: Prepared) -> ScriptedModule:
        """A fresh worker."""
        worker = ScriptedModule(self, prepared.candidate, self._role(prepared.candidate))
        self.started.append(worker)
        return worker

    def bandwidth(self) -> Bandwidth:
        """No memory is read: 10 GB/s, and no cache."""
        return Bandwidth(read_bytes_s=1e10, cache_bytes=0)

    def close(self) -> None:
        """End every worker."""
        for worker in self.started:
            worker.close()

    def _role(self, candidate: Candidate) -> Role:
        role = self.roles.get(candidate.id, self.default)
        earlier = sum(worker.candidate == candidate for worker in self.started)
        if role.fails and role.fails[0] == "load" and earlier >= role.fails[1]:
            raise CandidateFailed("load", "scripted failure", "last line of its log")
        return role


_TINY = ModelSpec(
    family="llama", layers=1, hidden=16, heads=1, kv_heads=1, head_dim=16, intermediate=16, vocab=64, rms_eps=1e-6,
    rope_theta=1e4,
)  # fmt: skip


def tiny_subject(host: str = "lm", *, depth: int = 3, fast_depth: int = 1) -> tuple[Subject, ModelSpec, Candidate]:
    """A subject, its spec and its stock candidate for a `ScriptedEngine`."""
    stock = scripted_candidate("stock", host)
    subject = Subject(
        name="scripted", host="lm" if host == "lm" else "module", weights=hashlib.blake2b(b"scripted").hexdigest()[:32],
        stock=stock.id, spec="{}", dtype="float32", depth=depth, fast_depth=fast_depth,
    )  # fmt: skip
    return subject, _TINY, stock


def scripted_candidate(name: str, host: str = "lm") -> Candidate:
    """A candidate whose only content is its name: what it does is its `Role`."""
    file = SourceFile(path="forward.py", text=f"# {name}\n")
    return Candidate(host="lm" if host == "lm" else "module", entry="forward.py:Forward", files=(file,))
