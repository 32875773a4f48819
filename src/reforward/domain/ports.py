"""The seams: one Protocol per actor, stated once, inherited by nobody."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from reforward.domain.calibration import Bandwidth
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.measurement import Failed, Measurement, Memory, Output, Sample, Tensor
from reforward.domain.profile import Op
from reforward.domain.record import Record
from reforward.domain.spec import Limits, ModelSpec, Segment
from reforward.domain.subject import Subject, Tier
from reforward.domain.target import Target
from reforward.domain.verdict import Verdict
from reforward.domain.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Brief:
    """What a proposer is shown: never content of requests, never hidden numbers."""

    subject: Subject
    target: Target
    workload: Workload
    contract: Contract
    stock: Candidate
    incumbent: Candidate
    """The best accepted so far; a new proposal usually starts from it."""
    verdicts: tuple[Verdict, ...]
    """Of this run, in order, both tiers."""
    skipped: tuple[str, ...] = ()
    """`what` of every `Unable` that this run has recorded, so that it is not said twice."""


@dataclass(frozen=True, kw_only=True)
class Idea:
    """A candidate with what is said about it, before it has a place in a run."""

    candidate: Candidate
    parent: str
    author: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Unable:
    """An idea that this machine cannot try, with the remedy."""

    author: str
    what: str
    remedy: str


class Proposer(Protocol):
    """Yields ideas until it has none."""

    name: str

    def propose(self, brief: Brief) -> Idea | Unable | None:
        """The next idea given all verdicts so far, or None when there is nothing left to try.

        Must be a pure function of the brief and of its own settings, so that a resumed run goes on where it stopped.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A candidate that is built and packed: its workers start without compiling or repacking anything."""

    candidate: Candidate
    artifacts: str
    """Folder, read-only to workers, with what its build stage made; empty string if it has none."""
    build_s: float
    packed: str
    """Key of its packed tensors in the vault; empty string if it packs nothing."""
    pack_s: float
    packed_bytes: int


class Worker(Protocol):
    """One live process that runs one candidate. Every call has a deadline; a broken rule raises `CandidateFailed`."""

    candidate: Candidate
    watermark: str
    """Hash of the source files as the worker executed them; equals `candidate.id` if nothing interfered."""
    load_s: float
    """Asked for to ready, by the client's clock."""

    @property
    def pid(self) -> int:
        """Of its process; 0 if it has none."""
        ...

    def pause(self) -> None:
        """Stop all threads of the worker until `resume`, so that it cannot slow the other arm."""
        ...

    def resume(self) -> None:
        """Let it go on."""
        ...

    def memory(self) -> Memory:
        """Bytes now (private: the peak so far), read from the kernel, not from the worker."""
        ...

    def profile(self, *, on: bool) -> tuple[Op, ...]:
        """Begin to note operations, or end it and tell them, most expensive first. What it tells decides nothing."""
        ...

    def close(self) -> None:
        """End the process and everything it started. Safe to call twice."""
        ...


class LmWorker(Worker, Protocol):
    """A worker of the `lm` host. Logits rows land in an outbox of `limits.rows` rows that the client maps."""

    def step(self, tokens: Sequence[int], segments: Sequence[Segment], rows: Sequence[int], first: int) -> list[int]:
        """One ragged call (see `runtime/forward.py`). Row i's logits go to outbox row `first + i`.

        Returns the greedy token of each row, as the worker computed it; the judge recomputes it from the row.
        """
        ...

    def run(
        self, last: Sequence[int], slots: Sequence[int], positions: Sequence[int], steps: int, first: int
    ) -> list[list[int]]:
        """`steps` greedy steps without the host; step s, sequence b goes to outbox row `first + s * B + b`.

        Uses the candidate's own `run` if it has one, else repeats `step` in the worker. Returns tokens[steps][B].
        """
        ...

    def rows(self, first: int, count: int) -> Tensor:
        """A copy of outbox rows, fp32 `[count, vocab]`."""
        ...

    layout: str
    """What its forward keeps for each slot, as a hash: workers with equal ones can take over each other's slots."""

    def save(self, slot: int) -> bytearray:
        """All state of a slot. Overwrites rows of the outbox."""
        ...

    def restore(self, slot: int, held: bytearray) -> None:
        """Put in place what a worker of equal `layout` saved; the slot then holds the same tokens. Overwrites rows too."""
        ...


class ModuleWorker(Worker, Protocol):
    """A worker of the `module` host."""

    def draw(self, seed: int, tier: Tier) -> tuple[Tensor, ...]:
        """Fresh inputs from the subject's own `inputs(generator, tier)`. Only asked of workers that run the stock."""
        ...

    def call(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """One forward. Output tensors by their place in the returned tree (`output`, `output[0]`, `output.loc`)."""
        ...


class Engine(Protocol):
    """A long-lived owner of resident weights that runs any candidate at any depth. A context manager in practice."""

    subject: Subject
    target: Target
    spec: ModelSpec | None
    """The whole model's shape; None for a module subject."""

    def prepare(self, candidate: Candidate) -> Prepared:
        """Build and pack, each in a sandboxed process of its own, from cache if possible. Raises `CandidateFailed`."""
        ...

    def build(self, candidate: Candidate) -> None:
        """The build stage alone, if the tree has one and was not built before. Another thread may call it beside a session."""
        ...

    def start_lm(self, prepared: Prepared, *, depth: int, limits: Limits, oracle: bool = False) -> LmWorker:
        """A fresh worker on the resident weights. `oracle` computes in float64 (trusted stock only)."""
        ...

    def start_module(self, prepared: Prepared) -> ModuleWorker:
        """A fresh worker with the candidate's class, weights attached by name without a copy."""
        ...

    def bandwidth(self) -> Bandwidth:
        """Of the memory that holds the weights, measured in a fraction of a second."""
        ...

    def close(self) -> None:
        """End every process of this engine and release the weights."""
        ...


class Stopping(Protocol):
    """Tells a session when to end. Pure: its state is rebuilt from the samples when the verdict is made."""

    def observe(self, samples: Sequence[Sample]) -> Literal["continue", "stop"]:
        """Asked after each completed pair of launches, with all samples so far."""
        ...


class Judge(Protocol):
    """Turns a measurement and its outputs into a verdict. No clock, no disk, no device."""

    def stopping(self, contract: Contract, tier: Tier) -> Stopping:
        """The rule that a session at `tier` ends by."""
        ...

    def rule(self, measurement: Measurement | Failed, outputs: Sequence[Output], contract: Contract) -> Verdict:
        """The ruling. Equal arguments give equal verdicts."""
        ...


class Ledger(Protocol):
    """Append-only history of all values. Every view is derived by reading it."""

    def append(self, *records: Record) -> None:
        """Store all or none, durably, before returning. Appending a stored record again changes nothing."""
        ...

    def get(self, record_id: str) -> Record:
        """The record with this id; raises `BadInput` if there is none."""
        ...

    def find(self, prefix: str) -> Record:
        """The one record whose id or hash starts with `prefix`; raises `BadInput` if none or several."""
        ...

    def records(self, tag: str) -> Iterator[Record]:
        """All records of one kind, in the order they were appended."""
        ...

    def verify(self) -> int:
        """Re-derive every id and blob hash; returns how many, raises `LedgerCorrupt` at the first mismatch."""
        ...
