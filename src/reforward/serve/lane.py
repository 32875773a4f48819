"""One worker and the sequences that it serves: a turn is one call, whose rows are checked before any token is believed."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reforward.domain.candidate import Candidate
from reforward.domain.deployment import Validity
from reforward.domain.errors import CandidateFailed
from reforward.domain.ports import LmWorker
from reforward.domain.spec import Limits, Segment
from reforward.engine.schedule import Plan, play
from reforward.serve.sampling import logprobs
from reforward.serve.scheduler import SPARE, Scheduler
from reforward.serve.sequence import Sequence

Clock = Callable[[], float]
"""Seconds from any origin, never going back."""
WEIGHT = 0.1
"""Of the newest call in the running means."""


@dataclass(kw_only=True)
class Pace:
    """Running means of what calls cost, for guesses of what is sooner."""

    decode_s: float = 0.0
    """Seconds of a call that only decodes; 0: none yet."""
    token_s: float = 0.0
    """Seconds a token of a call that stores prompts."""

    def note(self, plan: Plan, seconds: float) -> None:
        """One more call."""
        if plan.decode_only:
            self.decode_s = _mean(self.decode_s, seconds / plan.steps)
        else:
            self.token_s = _mean(self.token_s, seconds / len(plan.tokens))


def _mean(before: float, value: float) -> float:
    return value if before == 0 else before + WEIGHT * (value - before)


class Lane:
    """Serves sequences with one candidate. `turn` raises `CandidateFailed` when its worker is lost; then it is of no more use."""

    def __init__(
        self,
        worker: LmWorker,
        limits: Limits,
        *,
        chunk: int,
        exact: bool,
        validity: Validity,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.worker, self.limits, self.validity, self.exact = worker, limits, validity, exact
        self.clock = clock
        self.chunk, self.state_bytes = chunk, worker.memory().state
        self.scheduler = Scheduler(limits, chunk=chunk, exact=exact, most=validity.batch)
        self.pace = Pace()
        self.calls = 0

    @property
    def candidate(self) -> Candidate:
        """What it runs."""
        return self.worker.candidate

    @property
    def held(self) -> int:
        """Tokens that its slots hold."""
        return sum(sequence.stored for sequence in self.scheduler.running)

    def fits(self, sequence: Sequence) -> bool:
        """The candidate was judged at the length that this sequence has now, and one token more."""
        return sequence.length + 1 <= self.validity.length

    def turn(self) -> list[Sequence]:
        """Admit, one call, and the tokens to their sequences; returns the sequences that it ended."""
        now = time.monotonic()
        for sequence in self.scheduler.admit():
            sequence.began_at = sequence.began_at or now
        plan = self.scheduler.plan()
        if plan is None:
            return []
        begun = self.clock()
        tokens = play(self.worker, plan, 0)
        rows = self._rows(tokens)
        seconds = self.clock() - begun
        self.pace.note(plan, seconds)
        self.calls += 1
        self.scheduler.accept(plan)
        for place, sequence in self.scheduler.owners(plan):
            if sequence.reason is None:
                self._give(sequence, rows[place], (len(plan.owners), seconds) if plan.decode_only else None)
        return self.scheduler.retire()

    def _give(self, sequence: Sequence, row: NDArray[np.float32], decode: tuple[int, float] | None) -> None:
        token = sequence.draw(row)
        if sequence.notes is not None:
            sequence.notes.take(self.candidate.id, logprobs(row, token, 0).logprob, decode)
        sequence.served_by = self.candidate.id
        sequence.take(token, row)

    def _rows(self, tokens: list[int]) -> NDArray[np.float32]:
        """Rows `[M, vocab]` of a call that answered with `tokens`: finite, and each token the first maximum of its row."""
        if not tokens:
            return np.empty((0, 0), np.float32)
        made = self.worker.rows(0, len(tokens))
        rows = np.frombuffer(made.data, np.float32).reshape(made.shape)
        best = rows.argmax(axis=1)
        if not np.isfinite(rows[np.arange(len(rows)), best]).all():
            self._refuse("a row of logits is not finite")
        if best.tolist() != tokens:
            self._refuse("a token is not the first maximum of its row")
        return rows

    def _refuse(self, reason: str) -> None:
        self.worker.close()
        raise CandidateFailed("run", reason)

    def again(self, tokens: tuple[int, ...], first: int) -> Iterator[list[float]]:
        """Log-probabilities of `tokens[first:]`, each after all before it, made in the spare slot, one call a turn.

        For looking at a finished answer once more, beside the sequences in service.
        """
        slot, width = self.limits.slots - 1, min(self.chunk, self.limits.rows)
        for start in range(0, len(tokens) - 1, width):
            part = tokens[start : min(start + width, len(tokens) - 1)]
            wanted = [index for index in range(len(part)) if start + index + 1 >= first]
            best = self.worker.step(part, [Segment(slot=slot, start=start, length=len(part))], wanted, 0)
            rows = self._rows(best)
            yield [logprobs(row, tokens[start + index + 1], 0).logprob for index, row in zip(wanted, rows, strict=True)]

    def warm(self) -> None:
        """Every shape of call that comes up in service, once: each width of decode, and a prompt's chunk beside it.

        It runs beside traffic, so it does no more than that: one slot is given a chunk, the others one token each.
        """
        filled = min(self.chunk, self.limits.length - 2)
        others = range(1, self.limits.slots - SPARE)
        if others:
            self._step([(slot, 0, 1) for slot in others])
        beside = [] if self.exact else [(slot, 1, 1) for slot in others]
        self._step([*beside, (0, 0, filled)])
        widest = [(0, filled, 1), *((slot, 1, 1) for slot in others)]
        for width in [len(widest)] if self.exact else range(1, len(widest) + 1):
            self._step(widest[:width])

    def _step(self, spans: Iterable[tuple[int, int, int]]) -> None:
        segments = [Segment(slot=slot, start=start, length=length) for slot, start, length in spans]
        count = sum(segment.length for segment in segments)
        ends = np.cumsum([segment.length for segment in segments]) - 1
        begun = self.clock()
        self._rows(self.worker.step([1] * count, segments, ends.tolist(), 0))
        seconds = self.clock() - begun
        if count == len(segments):
            self.pace.decode_s = seconds
        else:
            self.pace.token_s = seconds / count
