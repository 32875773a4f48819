"""Requests through the scheduler of an engine, step by step, on a clock that a cost model gives: when each is answered.

Steps that only decode are taken many at once, up to the next thing that happens (an arrival that finds a seat, an end, the
last free block), so that an hour of traffic costs a second.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import BadInput
from reforward.plan.engine import Limits
from reforward.plan.rank import Load, Rank
from reforward.plan.traffic import Traffic

Floats = NDArray[np.float64]
WAITING_WEIGHT = 4
"""How many running requests one that waits counts for, when a rank is chosen (vLLM's `DPLBAsyncMPClient`)."""
LONGEST_RUN = 256
"""Decode-only steps taken at once while an arrival may come between."""


class Clock(Protocol):
    """Seconds of the steps of one engine."""

    def decode(self, batch: int, context: int, steps: int) -> Floats:
        """[steps]: a batch decodes; `context` is what it attends to in the first step, all requests together."""
        ...

    def mixed(self, load: Load) -> float:
        """A step with a piece of a prompt in it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What the scheduler of a replica works with."""

    limits: Limits
    blocks: int
    """KV blocks of each rank."""
    ranks: int = 1
    """Attention data parallel ranks, which step together."""
    overlap: int = 0
    """Steps that are already on their way when one ends (1: asynchronous scheduling): an arrival waits for them."""
    received: int = 0
    """The prompts of so many first requests come computed from elsewhere: they take blocks and a seat, and no step."""

    @property
    def kv_tokens(self) -> int:
        """Tokens that the blocks of a rank hold."""
        return self.blocks * self.limits.block_size


@dataclass(frozen=True, kw_only=True)
class Steps:
    """[n] each: when the steps began, how long they took, and what the ranks computed in them that took so long."""

    begin: Floats
    seconds: Floats
    prefill_tokens: Floats
    prefill_pairs: Floats
    batch: Floats
    context: Floats


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """Times of requests, seconds on the clock of the arrivals, in the order of the traffic."""

    arrival: Floats
    first: Floats
    last: Floats
    output: NDArray[np.int64]
    answered: Floats
    """[steps] how many requests got a token that was not their first, in each step."""
    long_gaps: Floats
    """Times between two tokens of a request that was paused in between."""
    pauses: int
    steps: Steps
    scheduled_step: NDArray[np.int64]
    """Steps that were done when a request was first scheduled, when its first token came, and its last."""
    first_step: NDArray[np.int64]
    last_step: NDArray[np.int64]
    rank: NDArray[np.int64]

    @property
    def ends(self) -> Floats:
        """[steps] when each step ended."""
        return self.steps.begin + self.steps.seconds

    @property
    def ttft(self) -> Floats:
        """[requests] arrival to first token, seconds."""
        return self.first - self.arrival

    @property
    def tpot(self) -> Floats:
        """[requests] seconds a token after the first (vLLM's definition); 0 where there is no other."""
        return (self.last - self.first) / np.maximum(self.output - 1, 1)

    @property
    def e2e(self) -> Floats:
        """[requests] arrival to last token, seconds."""
        return self.last - self.arrival

    def gaps(self, first: int = 0) -> tuple[Floats, Floats]:
        """Times between tokens, and how many there were of each, while requests from `first` on were let in."""
        begin, end = int(self.scheduled_step[first]), int(self.scheduled_step.max()) + 1
        times = np.append(self.steps.seconds[begin:end], self.long_gaps)
        return times, np.append(self.answered[begin:end], np.ones(len(self.long_gaps)))


def replay(traffic: Traffic, schedule: Schedule, clock: Clock) -> Replayed:
    """When every request of `traffic` is answered. `BadInput` if one does not fit into the engine's blocks at all."""
    longest = int((traffic.prompt + traffic.output).max())
    if longest > schedule.kv_tokens:
        raise BadInput(
            f"a request of {longest} tokens does not fit into {schedule.kv_tokens} tokens of KV blocks; "
            "use more GPUs a replica, a smaller KV type, or shorter requests"
        )
    return _Run(traffic, schedule, clock).run()


class _Run:
    """The state of one replay."""

    def __init__(self, traffic: Traffic, schedule: Schedule, clock: Clock) -> None:
        self.traffic, self.overlap, self.clock = traffic, schedule.overlap, clock
        self.arrivals: list[float] = traffic.arrival.tolist()
        prompt, output = traffic.prompt.tolist(), traffic.output.tolist()
        self.ranks = [
            Rank(schedule.limits, schedule.blocks, prompt, output, received=schedule.received)
            for _ in range(schedule.ranks)
        ]
        count = len(self.arrivals)
        self.first, self.last = [float("nan")] * count, [float("nan")] * count
        self.first_step, self.last_step, self.rank = [0] * count, [0] * count, [0] * count
        self.scheduled_step = [-1] * count
        self.now, self.came, self.left, self.step = 0.0, 0, count, 0
        self.recent: list[float] = []
        self.resting: dict[int, float] = {}
        self.long_gaps: list[float] = []
        self.log: list[Floats] = []
        self.single: list[tuple[float, ...]] = []

    def run(self) -> Replayed:
        while self.left:
            self._arrive()
            if not any(rank.running or rank.waiting for rank in self.ranks):
                self.now = max(self.now, self.arrivals[self.came])
                self.recent.clear()
                continue
            steps = self._run_length()
            self._decode(steps) if steps > 1 else self._step()
        return self._result()

    def _arrive(self) -> None:
        """Hand over who came before the last `overlap` steps were sent off."""
        ago = self.overlap
        seen = self.recent[-ago] if ago and len(self.recent) >= ago else self.now
        while self.came < len(self.arrivals) and self.arrivals[self.came] <= seen:
            choice = min(self.ranks, key=lambda rank: WAITING_WEIGHT * len(rank.waiting) + len(rank.running))
            choice.waiting.append(self.came)
            self.rank[self.came] = self.ranks.index(choice)
            self.came += 1

    def _run_length(self) -> int:
        if not all(rank.steady() for rank in self.ranks):
            return 0
        steps = min(rank.run_length() for rank in self.ranks)
        return min(steps, LONGEST_RUN) if self._open() else steps

    def _open(self) -> bool:
        """Whether an arrival would change what is computed."""
        return self.came < len(self.arrivals) and any(not rank.waiting and rank.free_seats() for rank in self.ranks)

    def _decode(self, steps: int) -> None:
        active = [rank for rank in self.ranks if rank.decoding]
        work = self._together([Load(batch=rank.decoding, context=rank.context + rank.decoding) for rank in self.ranks])
        seconds = self.clock.decode(work.batch, work.context, steps)
        ends = self.now + np.cumsum(seconds)
        if self._open():
            steps = min(steps, int(np.searchsorted(ends, self.arrivals[self.came])) + 1)
        self._note(seconds[:steps], work, sum(rank.decoding for rank in active))
        self._pass(float(ends[steps - 1]), ends[max(steps - 3, 0) : steps - 1].tolist(), steps)
        for rank in active:
            rank.advance(steps)
            self._finish(rank)

    def _step(self) -> None:
        loads = [rank.schedule() for rank in self.ranks]
        for rank, load in zip(self.ranks, loads, strict=True):
            self._rest(rank)
            self._note_admitted(load)
        work = self._together(loads)
        seconds = self._seconds(work)
        self._note_one(seconds, work, sum(load.batch for load in loads))
        self._pass(self.now + seconds, [], 1)
        for rank, load in zip(self.ranks, loads, strict=True):
            for index in rank.complete(load):
                self._first_token(index)
            self._finish(rank)

    def _together(self, loads: list[Load]) -> Load:
        """What a step takes as long as: the most that any rank has of each kind, since ranks pad to the largest."""
        if len(loads) == 1:
            return loads[0]
        return Load(
            prefill_tokens=max(load.prefill_tokens for load in loads),
            prefill_pairs=max(load.prefill_pairs for load in loads),
            batch=max(load.batch for load in loads),
            context=max(load.context for load in loads),
        )

    def _seconds(self, load: Load) -> float:
        if load.prefill_tokens:
            return self.clock.mixed(load)
        return float(self.clock.decode(load.batch, load.context, 1)[0]) if load.batch else 0.0

    def _pass(self, end: float, between: list[float], steps: int) -> None:
        self.recent = [*self.recent, self.now, *between][-2:]
        self.now = end
        self.step += steps

    def _rest(self, rank: Rank) -> None:
        for index in rank.paused:
            self.resting.setdefault(index, self.now)
        rank.paused.clear()

    def _note_admitted(self, load: Load) -> None:
        for index in load.admitted:
            if self.scheduled_step[index] < 0:
                self.scheduled_step[index] = self.step

    def _first_token(self, index: int) -> None:
        if index in self.resting:
            self.long_gaps.append(self.now - self.resting.pop(index))
        if self.first[index] != self.first[index]:
            self.first[index], self.first_step[index] = self.now, self.step

    def _finish(self, rank: Rank) -> None:
        for index in rank.finished:
            self.last[index], self.last_step[index] = self.now, self.step
        self.left -= len(rank.finished)
        rank.finished.clear()

    def _note(self, seconds: Floats, work: Load, answered: int) -> None:
        rows = np.zeros((7, len(seconds)))
        rows[0] = self.now + np.cumsum(seconds) - seconds
        rows[1] = seconds
        rows[4] = work.batch
        rows[5] = work.context + work.batch * np.arange(len(seconds))
        rows[6] = answered
        self._flush()
        self.log.append(rows)

    def _note_one(self, seconds: float, work: Load, answered: int) -> None:
        """One step, kept as a row until the next run of steps."""
        row = (self.now, seconds, work.prefill_tokens, work.prefill_pairs, work.batch, work.context, answered)
        self.single.append(row)

    def _flush(self) -> None:
        if self.single:
            self.log.append(np.array(self.single, dtype=float).T)
            self.single.clear()

    def _result(self) -> Replayed:
        self._flush()
        rows = np.concatenate(self.log, axis=1)
        return Replayed(
            arrival=self.traffic.arrival,
            first=np.array(self.first),
            last=np.array(self.last),
            output=self.traffic.output,
            answered=rows[6],
            long_gaps=np.array(self.long_gaps),
            pauses=sum(rank.pauses for rank in self.ranks),
            steps=Steps(
                begin=rows[0],
                seconds=rows[1],
                prefill_tokens=rows[2],
                prefill_pairs=rows[3],
                batch=rows[4],
                context=rows[5],
            ),
            scheduled_step=np.array(self.scheduled_step),
            first_step=np.array(self.first_step),
            last_step=np.array(self.last_step),
            rank=np.array(self.rank),
        )
