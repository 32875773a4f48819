"""Numbers for people and for `--json`, derived from records: never stored, never judged."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reforward.domain.measurement import Arm, ArmName, Measurement, Sample
from reforward.domain.subject import Tier
from reforward.domain.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Median:
    """A median with a distribution-free 95 % interval from order statistics (David and Nagaraja, Order Statistics)."""

    value: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, kw_only=True)
class ArmFacts:
    """One arm of a session, summarised over its passes."""

    candidate: str
    pass_s: Median
    decode_tok_s: Median | None
    ttft_s: Median | None
    load_s: float
    pack_s: float
    build_s: float
    packed_bytes: int
    private_bytes: int


@dataclass(frozen=True, kw_only=True)
class SessionFacts:
    """Both arms of a session side by side."""

    measurement: str
    tier: str
    launches: int
    weights_bytes: int
    incumbent: ArmFacts
    candidate: ArmFacts


def median(values: Sequence[float]) -> Median:
    """The median; `low` and `high` are the order statistics that cover it with at least 95 % (all, if too few)."""
    ordered = sorted(values)
    count = len(ordered)
    rank = _binomial_rank(count)
    return Median(value=statistics.median(ordered), low=ordered[rank], high=ordered[count - 1 - rank], count=count)


def _binomial_rank(count: int) -> int:
    """Largest r such that fewer than r+1 of `count` fair coins come up heads with probability at most 2.5 %."""
    below, rank = 0.0, 0
    while rank < count // 2:
        below += math.comb(count, rank) / 2**count
        if below > 0.025:
            break
        rank += 1
    return max(rank - 1, 0)


def session_facts(measurement: Measurement) -> SessionFacts:
    """Summary of a measurement: medians over all passes, none left out."""
    return SessionFacts(
        measurement=measurement.id,
        tier=measurement.tier,
        launches=len({sample.launch for sample in measurement.samples}),
        weights_bytes=measurement.candidate.memory.weights,
        incumbent=_arm(measurement.incumbent, "incumbent", measurement.samples),
        candidate=_arm(measurement.candidate, "candidate", measurement.samples),
    )


def _arm(arm: Arm, name: ArmName, samples: Sequence[Sample]) -> ArmFacts:
    own = [sample for sample in samples if sample.arm == name]
    rates = [sample.decode_tokens / sample.decode_s for sample in own if sample.decode_s > 0]
    ttft = [second for sample in own for second in sample.ttft_s]
    return ArmFacts(
        candidate=arm.candidate,
        pass_s=median([sample.seconds for sample in own]),
        decode_tok_s=median(rates) if rates else None,
        ttft_s=median(ttft) if ttft else None,
        load_s=arm.load_s,
        pack_s=arm.pack_s,
        build_s=arm.build_s,
        packed_bytes=arm.memory.packed,
        private_bytes=arm.memory.private,
    )


def count_verdicts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """`tier ruling reason` -> how many."""
    return dict(Counter(f"{v.tier} {v.ruling} {v.reason}" for v in verdicts).most_common())


def tier_agreement(verdicts: Sequence[Verdict]) -> float | None:
    """Spearman's rank correlation of gains between fast and slow tier; None with fewer than three candidates in both."""
    gains = {
        tier: {v.candidate: v.gain.mid for v in verdicts if v.tier == tier and v.gain} for tier in ("fast", "slow")
    }
    both = [candidate for candidate in gains["fast"] if candidate in gains["slow"]]
    if len(both) < 3:
        return None
    fast, slow = (_ranks([gains[tier][candidate] for candidate in both]) for tier in ("fast", "slow"))
    return statistics.correlation(fast, slow)


def _ranks(values: Sequence[float]) -> list[float]:
    """Place of each value in ascending order."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    places = [0.0] * len(values)
    for place, index in enumerate(order):
        places[index] = float(place)
    return places


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of how many, with exact one-sided 95 % bounds on the true share (Clopper and Pearson, Biometrika 1934)."""

    count: int
    of: int
    at_least: float
    at_most: float


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What the sessions came to."""

    run: str
    tier: Tier
    slowdown: float
    """By how much the incumbent was slowed down on purpose; 0 for identical code."""
    accepted: Share
    """False accepts if the code was identical, else gains that were seen."""
    reasons: dict[str, int]
    pairs: float
    """Mean number of pairs of launches to a ruling."""
    session_s: float | None
    """Median seconds of the sessions that this call ran; None if it ran none."""
    visible: tuple[tuple[int, float], ...]
    """(pairs of launches, gain that is seen every other time after them), for the noise of all sessions together."""
    drawn: Share | None
    """Accepts among sessions of pairs drawn anew, arms swapped at random; None for slowed code or too few pairs."""


def share(count: int, of: int) -> Share:
    """Seen so often, of so many."""
    return Share(count=count, of=of, at_least=1 - _largest(of - count, of), at_most=_largest(count, of))


def _largest(count: int, of: int) -> float:
    """Largest share under which so few would be seen with probability 5 %; by bisection."""
    low, high = count / of, 1.0
    while count < of and high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(count, of, middle) > 0.05 else (low, middle)
    return high


def _at_most(count: int, of: int, chance: float) -> float:
    """P(X <= count) for X binomial; by logs, since the coefficients outgrow any float."""
    if not 0 < chance < 1:
        return 1.0 if chance == 0 else 0.0
    whole, yes, no = math.lgamma(of + 1), math.log(chance), math.log1p(-chance)
    each = (whole - math.lgamma(k + 1) - math.lgamma(of - k + 1) + k * yes + (of - k) * no for k in range(count + 1))
    return math.fsum(map(math.exp, each))
