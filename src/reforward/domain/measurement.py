"""Raw facts of one session: `Measurement`, or `Failed`. Never an opinion."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from reforward.domain.record import LATER, Record
from reforward.domain.subject import Tier

ArmName = Literal["candidate", "incumbent"]
Stage = Literal["source", "build", "pack", "load", "warmup", "run", "output", "numerics"]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One pass of one arm over the workload, timed by the client's clock."""

    arm: ArmName
    launch: int
    """Index of the pair of fresh launches this pass belongs to."""
    order: int
    """Position in the session, from 0, over both arms."""
    seconds: float
    """First plan sent to last row received."""
    ttft_s: tuple[float, ...] = ()
    """Per request: arrival of its first token minus its submission. Empty for a module."""
    decode_s: float = 0.0
    """Seconds spent in steps that only decode. Zero for a module."""
    decode_tokens: int = 0
    """Tokens made in those steps."""
    crowded: float = field(default=0.0, metadata=LATER)
    """Share of the worker's processors that processes of others had meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes, each in a column of its own."""

    weights: int
    """Shared by all workers of an engine, counted once."""
    packed: int
    """Made by the candidate's `pack`, kept in the vault, shared by its workers."""
    state: int
    """Per-slot state that the runtime allocated on the candidate's demand."""
    private: int
    """Peak of the worker's own pages: everything else."""

    @property
    def own(self) -> int:
        """What a worker holds beyond what all share."""
        return self.packed + self.state + self.private


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One side of a session."""

    candidate: str
    """Id of the candidate that ran."""
    watermark: str
    """Hash that the worker computed over the source it executed: proof that this code ran."""
    load_s: float
    """Candidate handed over to first answer possible; median over launches."""
    pack_s: float
    """Seconds of packing; 0 if it packs nothing."""
    build_s: float
    """Seconds of the build stage; 0 if nothing was built or the build came from the cache."""
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Measurement(Record):
    """Facts of one session at one tier on one target and workload."""

    tag: ClassVar[str] = "measurement"

    tier: Tier
    target: str
    workload: str
    nonce: str
    """Seed of all token content, drawn after the candidate was frozen; revealed here."""
    candidate: Arm
    incumbent: Arm
    samples: tuple[Sample, ...]
    """In the order taken; none is ever dropped."""
    outputs: str
    """Content hash over the outputs of candidate, stock and oracle that the judge was handed."""
    started_at: str
    """UTC, ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class Failed(Record):
    """A session that ended without a measurement, with the last lines of its log."""

    tag: ClassVar[str] = "failed"

    tier: Tier
    target: str
    workload: str
    candidate: str
    arm: ArmName
    stage: Stage
    reason: str
    log: str
    started_at: str


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An output as bytes: what crosses a process boundary. Row-major; `data` may be a view of shared memory."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


@dataclass(frozen=True, kw_only=True)
class Output:
    """Outputs of the same inputs by three forwards. lm: logits rows [n, vocab]; module: one output tensor."""

    name: str
    """Where it comes from: `launch 2, request 0` or `input 3, output[0]`."""
    candidate: Tensor
    stock: Tensor
    """The stock forward at the subject's own precision: the yardstick of rounding noise."""
    oracle: Tensor | None = None
    """The stock forward in float64 where the contract tolerates rounding; None where only `stock` was computed."""
    tokens: tuple[int, ...] = ()
    """lm: the token that the candidate reported for each row."""
    positions: tuple[int, ...] = ()
    """lm: where in its sequence each row lies."""
