"""Predicted beside measured: percentiles of what clients waited for, and what each term of the cost model was off by."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reforward.domain.errors import BadInput
from reforward.plan.calibrate import FEWEST, Measured, calibrate, clock_of
from reforward.plan.replay import Replayed, Schedule, replay
from reforward.plan.steps import StepTimes
from reforward.plan.traffic import Traffic

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One percentile. Seconds."""

    name: str
    measured: float
    predicted: float
    calibrated: float
    """Predicted again with the factors, for the requests that they were not fitted to."""
    measured_later: float
    """Measured on those same requests."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A plan against what happened."""

    requests: int
    fitted_on: int
    """The first so many requests gave the factors."""
    compared: tuple[Compared, ...]
    factors: Mapping[str, float]
    """Measured over predicted, by term."""
    shares: Mapping[str, float]
    """Share of all predicted time, by term: how much a factor matters."""


def check(steps: StepTimes, schedule: Schedule, traffic: Traffic, measured: Measured) -> Checked:
    """Replay what was sent, compare, and fit factors to the first half; they are tried on the second."""
    known = len(traffic) // 2
    if known < FEWEST:
        raise BadInput(f"{len(traffic)} measured requests are too few to check a plan by; give {2 * FEWEST} or more")
    run = replay(traffic, schedule, clock_of(steps, schedule, traffic))
    scaled = calibrate(steps, schedule, traffic, measured, known)
    again = replay(traffic, schedule, clock_of(scaled, schedule, traffic))
    return Checked(
        requests=len(traffic),
        fitted_on=known,
        compared=tuple(_compared(traffic, measured, run, again, known)),
        factors=dict(scaled.factors),
        shares=_shares(steps, run),
    )


def _compared(traffic: Traffic, measured: Measured, run: Replayed, again: Replayed, known: int) -> list[Compared]:
    several = traffic.output > 1
    tokens = np.maximum(traffic.output - 1, 1)
    kinds = {
        "ttft": (measured.first - traffic.arrival, run.ttft, again.ttft, np.ones(len(traffic), dtype=bool)),
        "tpot": ((measured.last - measured.first) / tokens, run.tpot, again.tpot, several),
        "e2e": (measured.last - traffic.arrival, run.e2e, again.e2e, np.ones(len(traffic), dtype=bool)),
    }
    later = np.arange(len(traffic)) >= known
    return [
        Compared(
            name=f"{name}_p{place}",
            measured=float(np.percentile(real[kept], place)),
            predicted=float(np.percentile(ours[kept], place)),
            calibrated=float(np.percentile(fitted[kept & later], place)),
            measured_later=float(np.percentile(real[kept & later], place)),
        )
        for name, (real, ours, fitted, kept) in kinds.items()
        for place in PERCENTILES
    ]


def _shares(steps: StepTimes, run: Replayed) -> dict[str, float]:
    tokens, batch = run.steps.prefill_tokens, run.steps.batch
    before = np.where(tokens > 0, run.steps.prefill_pairs / np.maximum(tokens, 1) - 1, 0.0)
    found = steps.terms(tokens, before, batch, run.steps.context / np.maximum(batch, 1))
    seconds = {name: float(np.broadcast_to(value, tokens.shape).sum()) for name, value in found.items()}
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items()}
