"""Continuous batching as a pure plan builder: requests in, ragged calls out, tokens back.

The front that owns a `Scheduler` holds prompts and produced tokens; a worker only ever sees the next plan. Decode goes
first and prefill fills what is left of the token budget, so that a long prompt never stalls the others (stall-free
batching: Agrawal et al., Sarathi-Serve, OSDI 2024).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from reforward.domain.errors import BadInput
from reforward.domain.ports import LmWorker
from reforward.domain.spec import Limits, Segment


@dataclass(frozen=True, kw_only=True)
class Script:
    """One request to play: it ends after exactly `outputs` tokens, whatever they are."""

    prompt: tuple[int, ...]
    outputs: int
    feed: tuple[int, ...] = ()
    """Client-fed continuation: token i of it is fed instead of produced token i. Empty: free-running."""

    def __post_init__(self) -> None:
        if not self.prompt or self.outputs < 1:
            raise BadInput(f"a script needs a prompt and an output, got {len(self.prompt)} and {self.outputs} tokens")
        if self.feed and len(self.feed) < self.outputs - 1:
            raise BadInput(f"{self.outputs} outputs need {self.outputs - 1} fed tokens, got {len(self.feed)}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One call for a worker: a ragged `step`, or with `steps` > 1 a `run` of that many greedy steps."""

    tokens: tuple[int, ...]
    segments: tuple[Segment, ...]
    rows: tuple[int, ...]
    """Indices into `tokens` whose logits are wanted."""
    owners: tuple[int, ...]
    """Per row that comes back, `steps` times as many as `rows`, step by step: the request that it belongs to."""
    decode_only: bool
    """Every segment carries one produced (or fed) token."""
    steps: int = 1


def play(worker: LmWorker, plan: Plan, first: int) -> list[int]:
    """One call, answered with a token for each of `plan.owners`, whose rows lie in the outbox from `first` on."""
    if plan.steps == 1:
        return worker.step(plan.tokens, plan.segments, plan.rows, first)
    slots, positions = [s.slot for s in plan.segments], [s.start for s in plan.segments]
    made = worker.run(plan.tokens, slots, positions, plan.steps, first)
    return [token for step in made for token in step]


@dataclass(kw_only=True)
class InFlight:
    """A request in flight: what it holds, what it has produced."""

    request: int
    script: Script
    slot: int
    stored: int = 0
    """Tokens that the worker holds for it."""
    produced: list[int] = field(default_factory=list[int])

    @property
    def finished(self) -> bool:
        """All its outputs have arrived."""
        return len(self.produced) >= self.script.outputs

    @property
    def pending(self) -> int:
        """Tokens that are known and not yet stored."""
        return len(self.script.prompt) + len(self.produced) - self.stored

    @property
    def decoding(self) -> bool:
        """Its prompt is stored."""
        return self.stored >= len(self.script.prompt)

    def upcoming(self, count: int) -> tuple[int, ...]:
        """The next `count` tokens to store."""
        prompt = self.script.prompt
        if not self.decoding:
            return prompt[self.stored : self.stored + count]
        continuation = self.script.feed or self.produced
        return (continuation[self.stored - len(prompt)],)


class Scheduler:
    """Closed-loop continuous batching: at most `limits.slots` requests in flight, in the order submitted."""

    def __init__(self, limits: Limits) -> None:
        if limits.tokens < limits.slots:
            raise BadInput(f"{limits.slots} slots need at least as many tokens per call, got {limits.tokens}")
        self.limits = limits
        self.waiting: deque[tuple[int, Script]] = deque()
        self.running: list[InFlight] = []
        self.free = list(range(limits.slots - 1, -1, -1))
        self.submitted = 0

    def submit(self, script: Script) -> int:
        """Queue a request; returns its number, counted from 0."""
        if len(script.prompt) + script.outputs > self.limits.length:
            raise BadInput(f"{len(script.prompt)} + {script.outputs} tokens do not fit {self.limits.length} positions")
        self.waiting.append((self.submitted, script))
        self.submitted += 1
        return self.submitted - 1

    def admit(self) -> tuple[int, ...]:
        """Move waiting requests into free slots; returns the numbers of those that are in flight from now on."""
        admitted: list[int] = []
        while self.waiting and self.free:
            request, script = self.waiting.popleft()
            self.running.append(InFlight(request=request, script=script, slot=self.free.pop()))
            admitted.append(request)
        return tuple(admitted)

    def plan(self) -> Plan | None:
        """The next call, or None when nothing is in flight."""
        if not self.running:
            return None
        if (steps := self._steps_alone()) > 1:
            return _plan([(sequence, 1) for sequence in self.running], steps)
        budget = self.limits.tokens
        shares: list[tuple[InFlight, int]] = []
        for sequence in sorted(self.running, key=lambda s: not s.decoding):
            count = min(sequence.pending, budget)
            if count:
                shares.append((sequence, count))
                budget -= count
        return _plan(shares)

    def accept(self, plan: Plan, tokens: Sequence[int]) -> tuple[int, ...]:
        """Store what a call produced, in the order of `plan.owners`; returns the requests that it finished."""
        if len(tokens) != len(plan.owners):
            raise BadInput(f"a plan of {len(plan.owners)} rows was answered with {len(tokens)} tokens")
        by_slot = {sequence.slot: sequence for sequence in self.running}
        for segment in plan.segments:
            by_slot[segment.slot].stored += segment.length * plan.steps
        by_request = {sequence.request: sequence for sequence in self.running}
        for request, token in zip(plan.owners, tokens, strict=True):
            by_request[request].produced.append(token)
        return self._retire()

    def _steps_alone(self) -> int:
        """Greedy steps that need no host: all decode freely, and none ends before the last of them."""
        if not all(sequence.decoding and not sequence.script.feed for sequence in self.running):
            return 1
        return min(self.limits.steps, *(s.script.outputs - len(s.produced) for s in self.running))

    def _retire(self) -> tuple[int, ...]:
        done = [sequence for sequence in self.running if sequence.finished]
        self.running = [sequence for sequence in self.running if not sequence.finished]
        self.free.extend(sequence.slot for sequence in reversed(done))
        return tuple(sequence.request for sequence in done)


def _plan(shares: Sequence[tuple[InFlight, int]], steps: int = 1) -> Plan:
    tokens: list[int] = []
    segments: list[Segment] = []
    rows: list[int] = []
    owners: list[int] = []
    for sequence, count in shares:
        tokens += sequence.upcoming(count)
        segments.append(Segment(slot=sequence.slot, start=sequence.stored, length=count))
        if count == sequence.pending:
            rows.append(len(tokens) - 1)
            owners.append(sequence.request)
    return Plan(
        tokens=tuple(tokens),
        segments=tuple(segments),
        rows=tuple(rows),
        owners=tuple(owners) * steps,
        decode_only=all(sequence.decoding for sequence, _ in shares),
        steps=steps,
    )
