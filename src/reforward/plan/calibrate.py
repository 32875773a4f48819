"""What measured requests say about a cost model: one factor a term, so that a difference points at its cause."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import BadInput, Unavailable
from reforward.plan.clock import TableClock
from reforward.plan.replay import Replayed, Schedule, Steps, replay
from reforward.plan.steps import Array, ByTerms, Number, StepTimes
from reforward.plan.traffic import Traffic

Floats = NDArray[np.float64]
FEWEST = 10
"""Requests below which nothing is fitted."""
ROUNDS = 10
"""Replays: each fits the factors to the steps that the one before says each request took part in."""
PRIOR = 0.3
"""Weight of the belief that a factor is 1, in requests whose time a token is off by 100 %, for a term that is all of the time;
of one that is a part, as the root of its share: a small term may well be off by more."""
FIRST_WEIGHT = 0.3
"""Weight of a time to first token against that of the tokens after it: it holds few steps, and waits that are no step's."""
SHORTEST = 0.02
"""Seconds: errors of shorter times to first token count as if they were this long."""
OFF = (0.7, 0.3)
"""Log ratio of predicted to measured time to first token beyond which a request is left out: at first, and later."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Times of requests on the clock of their arrivals, seconds; [requests] each."""

    scheduled: Floats
    """NaN where it was not recorded."""
    first: Floats
    last: Floats


@dataclass(frozen=True, kw_only=True)
class Scaled(ByTerms):
    """A cost model, each of its terms times a factor. Implements `StepTimes`."""

    base: StepTimes
    factors: Mapping[str, float]

    def terms(
        self, prefill_tokens: Number, prefill_context: Number, batch: Number, context: Number
    ) -> dict[str, Array]:
        """The terms of the base, scaled."""
        found = self.base.terms(prefill_tokens, prefill_context, batch, context)
        return {name: self.factors.get(name, 1.0) * seconds for name, seconds in found.items()}


def clock_of(steps: StepTimes, schedule: Schedule, traffic: Traffic) -> TableClock:
    """The tables that a replay of this traffic needs."""
    most = min(schedule.limits.max_num_seqs, len(traffic))
    return TableClock(
        steps, most_batch=most, most_tokens=schedule.limits.max_num_batched_tokens, longest=traffic.longest
    )


def calibrate(base: StepTimes, schedule: Schedule, traffic: Traffic, measured: Measured, known: int) -> Scaled:
    """Factors from the times of the first `known` requests; all requests' arrivals and lengths are used.

    A replay says which steps each request waited for, so its time is a sum of terms with unknown factors: non-negative
    least squares with a prior at 1. The factors give another replay, and so on.
    """
    if known < FEWEST:
        raise BadInput(f"{known} measured requests are too few to calibrate by; give {FEWEST} or more")
    scaled = Scaled(base=base, factors={})
    for turn in range(ROUNDS):
        run = replay(traffic, schedule, clock_of(scaled, schedule, traffic))
        terms = _step_terms(base, run.steps)
        found = _fit(terms, scaled.factors, run, measured, known, schedule.overlap, OFF[turn > 2])
        blended = {name: (value + scaled.factors.get(name, value)) / 2 for name, value in found.items()}
        scaled = Scaled(base=base, factors=blended)
    return scaled


def _step_terms(base: StepTimes, steps: Steps) -> dict[str, Floats]:
    """[steps] seconds by term of every step of a replay."""
    tokens, batch = steps.prefill_tokens, steps.batch
    before = np.where(tokens > 0, steps.prefill_pairs / np.maximum(tokens, 1) - 1, 0.0)
    found = base.terms(tokens, before, batch, steps.context / np.maximum(batch, 1))
    return {name: np.broadcast_to(seconds, tokens.shape) for name, seconds in found.items()}


def _fit(
    terms: dict[str, Floats],
    before: Mapping[str, float],
    run: Replayed,
    measured: Measured,
    known: int,
    overlap: int,
    off: float,
) -> dict[str, float]:
    try:
        from scipy import optimize
    except ImportError as error:
        raise Unavailable(
            f"SciPy fits the factors, and is not installed; pip install 'reforward[plan]' ({error})"
        ) from error
    nonnegative = cast(Any, optimize).nnls
    columns = np.stack([np.concatenate([[0.0], np.cumsum(seconds)]) for seconds in terms.values()], axis=1)
    theta = np.array([before.get(name, 1.0) for name in terms])
    rest = _rows(columns, run.first_step[:known], run.last_step[:known], (measured.last - measured.first)[:known])
    begun = np.maximum(run.scheduled_step[:known] - overlap, 0)
    fill = _rows(columns, begun, run.first_step[:known], (measured.first - measured.scheduled)[:known])
    near = np.abs(np.log(np.maximum(fill[0] @ theta, 1e-6) / np.maximum(fill[1], 1e-6))) < off
    fill_weight = FIRST_WEIGHT / np.maximum(fill[1], SHORTEST)
    shares = np.sqrt(columns[-1] * theta / (columns[-1] @ theta))
    prior = PRIOR * np.maximum(shares, 0.01)
    rows = [rest[0] / rest[1][:, None], (fill[0] * fill_weight[:, None])[near], np.diag(prior)]
    goals = [np.ones(len(rest[1])), (fill[1] * fill_weight)[near], prior]
    solved: Floats = nonnegative(np.concatenate(rows), np.concatenate(goals))[0]
    return dict(zip(terms, solved.tolist(), strict=True))


def _rows(columns: Floats, begin: NDArray[np.int64], end: NDArray[np.int64], seconds: Floats) -> tuple[Floats, Floats]:
    """[rows, terms] predicted seconds between two steps, and [rows] measured; rows without a measurement are left out."""
    kept = np.isfinite(seconds) & (seconds > 0)
    return (columns[end] - columns[begin])[kept], seconds[kept]
