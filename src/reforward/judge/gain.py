"""How much faster, from pairs of fresh launches: a Student-t interval under an error budget spent over looks.

The unit of inference is one pair of launches: its effect is the mean over its passes of log(incumbent seconds /
candidate seconds). All samples count. The sample deviation of the pairs is never taken smaller than the passes inside
them imply, since two or three pairs can agree by accident.

Neighbours disturb passes one at a time, and by multiples: of two pairs, one slow incumbent pass each looks like a large and
steady gain. So a gain must be there in the lower median of the passes too, not in the mean alone.

Budget. A run, with all runs against the same incumbent, may spend `contract.alpha` on false accepts. Only the slow tier
promotes, so only it spends: the
j-th confirmation gets alpha * 6 / (pi * j)**2, which sums to alpha however many there are. Inside one session
the budget is spread over its looks by a spending function (Lan and DeMets, Biometrika 1983; the linear member of the
power family of Kim and DeMets, Biometrika 1987). Increments are used as they are, as one-sided levels of separate
tests, so the union bound holds whatever the dependence between looks; the classical boundaries would be a little
wider open. The fast tier spends `fast_alpha` per session on calling something promising, which admits nothing.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from reforward.domain.calibration import Noise
from reforward.domain.contract import Contract
from reforward.domain.measurement import Sample
from reforward.domain.subject import Tier
from reforward.domain.verdict import Interval
from reforward.judge.student import quantile

STEP = 1.5
"""Each look comes after so many times the pairs of the look before."""
FUTILITY: dict[Tier, float] = {"fast": 0.10, "slow": 0.05}
"""One-sided level at which a session gives up; giving up too early loses a candidate but never admits one."""
FIRST_FAST_LOOK = 3
"""Two pairs that a neighbour disturbs alike look like a gain more often than any theory of noise allows."""
DISTURBED = 2.0
"""Pairs that spread so many times wider than the noise known beforehand are disturbed, and speak for themselves alone."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One pair of launches, in logarithms of speed."""

    effect: float
    blocks: tuple[float, ...]
    """Effect of each candidate pass against the incumbent pass of the same text."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the pairs so far say about log(speed of candidate / speed of incumbent)."""

    pairs: int
    mean: float
    error: float
    """Standard error of the mean; infinite if nothing is known about the spread."""
    freedom: int
    """Degrees of freedom of `error`."""
    middle: float
    """Lower median over the passes: an effect that half of them reach, however large the others are."""

    def bound(self, level: float) -> float:
        """Half the width of the interval that errs on one side with probability `level`."""
        return quantile(level, self.freedom) * self.error if self.freedom else math.inf

    def interval(self, level: float) -> Interval | None:
        """As relative gains; None if nothing is known about the spread."""
        if not self.freedom:
            return None
        width = self.bound(level)
        return Interval(low=_gain(self.mean - width), mid=_gain(self.mean), high=_gain(self.mean + width))


def pairs(samples: Sequence[Sample]) -> tuple[Pair, ...]:
    """All complete pairs of launches, in order."""
    made = (_pair(passes) for passes in by_pair(samples))
    return tuple(pair for pair in made if pair is not None)


def by_pair(samples: Sequence[Sample]) -> list[tuple[Sample, ...]]:
    """The passes of each pair of launches, complete or not."""
    launches = sorted({sample.launch for sample in samples})
    return [tuple(sample for sample in samples if sample.launch == launch) for launch in launches]


def _pair(samples: Sequence[Sample]) -> Pair | None:
    ordered = sorted(samples, key=lambda sample: sample.order)
    ours = [sample.seconds for sample in ordered if sample.arm == "candidate"]
    theirs = [sample.seconds for sample in ordered if sample.arm == "incumbent"]
    if not ours or len(ours) != len(theirs):
        return None
    blocks = tuple(math.log(b / a) for a, b in zip(ours, theirs, strict=True))
    return Pair(effect=statistics.fmean(blocks), blocks=blocks)


def estimate(samples: Sequence[Sample], prior: Noise | None = None) -> Estimate:
    """Mean effect and its standard error, with what is known of the noise beforehand as long as the pairs look like it."""
    found = pairs(samples)
    mean = statistics.fmean(pair.effect for pair in found) if found else 0.0
    middle = statistics.median_low([block for pair in found for block in pair.blocks] or [0.0])
    own = _spread(found)
    believed = [prior] if prior and own.deviation <= DISTURBED * prior.deviation else []
    freedom = own.freedom + sum(source.freedom for source in believed)
    if not found or not freedom:
        return Estimate(pairs=len(found), mean=mean, error=math.inf, freedom=0, middle=middle)
    variance = sum(source.freedom * source.deviation**2 for source in (own, *believed)) / freedom
    error = math.sqrt(variance / len(found))
    return Estimate(pairs=len(found), mean=mean, error=error, freedom=freedom, middle=middle)


def noise(samples: Sequence[Sample]) -> Noise:
    """Spread of the pairs, never smaller than the passes inside them imply (which is all that one pair can tell)."""
    return _spread(pairs(samples))


def _spread(found: Sequence[Pair]) -> Noise:
    blocks = [block for pair in found for block in pair.blocks]
    if len(blocks) < 2:
        return Noise(deviation=0.0, freedom=0)
    inside = statistics.stdev(blocks) / math.sqrt(len(blocks) / len(found))
    between = statistics.stdev([pair.effect for pair in found]) if len(found) > 1 else 0.0
    return Noise(deviation=max(between, inside, 1e-9), freedom=len(found) - 1)


def looks(contract: Contract, tier: Tier) -> tuple[int, ...]:
    """Numbers of pairs after which a session may accept."""
    first = FIRST_FAST_LOOK if tier == "fast" else contract.min_pairs
    last = contract.pairs_at(tier)
    found = [min(first, last)]
    while found[-1] < last:
        found.append(min(last, max(found[-1] + 1, math.floor(found[-1] * STEP))))
    return tuple(found)


def ends(contract: Contract, tier: Tier) -> tuple[int, int]:
    """The first and the last look."""
    schedule = looks(contract, tier)
    return schedule[0], schedule[-1]


def budget(contract: Contract, tier: Tier, confirmations: int) -> float:
    """Error that this session may spend, when `confirmations` slow sessions that share the budget came before it."""
    if tier == "fast":
        return contract.fast_alpha
    return contract.alpha * 6 / (math.pi * (confirmations + 1)) ** 2


def level(contract: Contract, tier: Tier, confirmations: int, count: int) -> float | None:
    """One-sided level of the look after `count` pairs, or None where there is no look."""
    schedule = looks(contract, tier)
    if count not in schedule:
        return None
    before = schedule[schedule.index(count) - 1] if count != schedule[0] else 0
    return budget(contract, tier, confirmations) * (count - before) / schedule[-1]


def needed(contract: Contract, tier: Tier) -> float:
    """The gain that counts at this tier, as a logarithm."""
    gain = max(contract.min_gain, contract.resolution / 2) if tier == "fast" else contract.min_gain
    return math.log1p(gain)


def visible(known: Noise, contract: Contract, tier: Tier, count: int) -> float:
    """Gain that a session on a machine of this noise sees every other time at its look after `count` pairs.

    The fast tier decides with what is `known` beforehand, the slow tier with its own pairs alone.
    """
    at_look = level(contract, tier, 0, count)
    assert at_look is not None, f"{count} is none of the looks {looks(contract, tier)}"
    freedom = count - 1 + (known.freedom if tier == "fast" else 0)
    return detectable(quantile(at_look, freedom) * known.deviation / math.sqrt(count), contract, tier)


def detectable(width: float, contract: Contract, tier: Tier) -> float:
    """Gain that is seen every other time where the interval reaches `width` (a logarithm) to each side."""
    goal = needed(contract, tier)
    return _gain(max(width, goal) if tier == "fast" else width + goal)


def _gain(effect: float) -> float:
    return math.expm1(min(effect, 700.0))
