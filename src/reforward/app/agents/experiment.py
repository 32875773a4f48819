"""An experiment on agents: the same agents, budget and engine, told in different ways, in random order, again and again."""

import math
import secrets
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reforward.app.budget import Budget, parse_seconds
from reforward.app.calibrate import calibrated
from reforward.app.events import Emit, Working
from reforward.app.house import House, open_house
from reforward.app.optimize import Search, open_journal
from reforward.app.settings import Settings
from reforward.domain.attempt import Attempt, Ended, Spent
from reforward.domain.errors import BadInput
from reforward.domain.verdict import Verdict
from reforward.judge.student import quantile
from reforward.ledger.views import every

TAIL = 0.025
"""Of each side of the interval of the difference."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of one arm, from the stock forward."""

    arm: str
    repeat: int
    place: int
    """Within its repeat, from 0."""
    run: str
    gain: float
    """Of the accepted candidates one upon the other, over the stock forward: 0.5 is 50 % faster; 0 if none was accepted."""
    screened: int
    accepted: int
    tokens: int
    """In and out, of all agents whose calls are counted."""
    usd: float | None
    busy_share: float
    """Of the engine."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of the second arm from the first, in speed: 0.1 means that its forwards are 10 % faster. Paired by repeat."""

    mid: float
    low: float | None
    """Ends of the 95 % interval; None with fewer than two repeats, or if all repeats differ alike (say, nothing was found)."""
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All trials in the order taken, and what they say."""

    subject: str
    budget: str
    arms: tuple[str, str]
    trials: tuple[Trial, ...]
    difference: Difference


def experiment(
    subject: str, settings: Settings, arms: Mapping[str, Search], *, budget: str, repeats: int, emit: Emit
) -> Experiment:
    """Open a house and compare the arms in it. `BadInput` unless there are two."""
    if len(arms) != 2:
        raise BadInput(f"an experiment compares two different arms, got {', '.join(arms) or 'none'}")
    parse_seconds(budget)
    with open_house(subject, settings, emit) as opened:
        return compare(calibrated(opened, emit), arms, budget=budget, repeats=repeats, emit=emit)


def compare(house: House, arms: Mapping[str, Search], *, budget: str, repeats: int, emit: Emit) -> Experiment:
    """Run every arm `repeats` times on one engine, in an order drawn anew for each repeat."""
    limits, trials = Budget(seconds=parse_seconds(budget)), list[Trial]()
    for repeat in range(repeats):
        for place, arm in enumerate(secrets.SystemRandom().sample(list(arms), len(arms))):
            emit(Working(what=f"repeat {repeat + 1} of {repeats}, arm {arm}"))
            trials.append(_trial(house, arms[arm], limits, emit, arm, repeat, place))
    first, second = arms
    return Experiment(
        subject=house.loaded.subject.name,
        budget=budget,
        arms=(first, second),
        trials=tuple(trials),
        difference=difference(gains(trials, first), gains(trials, second)),
    )


def gains(trials: Sequence[Trial], arm: str) -> list[float]:
    """Of one arm, by repeat."""
    return [trial.gain for trial in sorted(trials, key=lambda trial: trial.repeat) if trial.arm == arm]


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Student's interval of the mean of paired differences of logarithms; gains of the same repeat are a pair."""
    pairs = [math.log1p(b) - math.log1p(a) for a, b in zip(first, second, strict=True)]
    mid = statistics.fmean(pairs)
    if len(pairs) < 2 or len(set(pairs)) < 2:
        return Difference(mid=math.expm1(mid), low=None, high=None)
    width = quantile(TAIL, len(pairs) - 1) * statistics.stdev(pairs) / math.sqrt(len(pairs))
    return Difference(mid=math.expm1(mid), low=math.expm1(mid - width), high=math.expm1(mid + width))


def _trial(house: House, search: Search, budget: Budget, emit: Emit, arm: str, repeat: int, place: int) -> Trial:
    journal = open_journal(house, house.loaded.stock, resume=False, proposers=search.proposers)
    run = journal.run
    driven = search.drive(house, journal, budget, emit)
    attempts = {attempt.id for attempt in every(house.ledger, Attempt) if attempt.run == run.id}
    ends = [end for end in every(house.ledger, Ended) if end.attempt in attempts]
    costs = [spent.usd for spent in every(house.ledger, Spent) if spent.attempt in attempts]
    return Trial(
        arm=arm,
        repeat=repeat,
        place=place,
        run=run.id,
        gain=total_gain(journal.accepted),
        screened=journal.screened,
        accepted=len(journal.accepted),
        tokens=sum(end.tokens_in + end.tokens_out for end in ends),
        usd=sum(costs) if costs else None,
        busy_share=driven.engine.busy_share if driven.engine else 0.0,
    )


def total_gain(accepted: Sequence[Verdict]) -> float:
    """Each was measured against the one before it."""
    return math.prod(1 + verdict.gain.mid for verdict in accepted if verdict.gain) - 1
