"""How much faster, from pairs of fresh launches: a Student-t interval under an error budget spent over looks.

The unit of inference is one pair of launches: its effect is the mean over its passes of log(incumbent seconds /
candidate seconds). All samples count. The sample deviation of the pairs is never taken smaller than the passes inside
them imply, since two or three pairs can agree by accident.

Budget. A whole run may spend `contract.alpha` on false accepts. Only the slow tier promotes, so only it spends: the
j-th confirmation of a run gets alpha * 6 / (pi * j)**2, which sums to alpha however many there are. Inside one session
the budget is spread over its looks by a spending function (Lan and DeMets, Biometrika 1983; the linear member of the
power family of Kim and DeMets, Biometrika 1987). Increments are used as they are, as one-sided levels of separate
tests, so the union bound holds whatever the dependence between looks; the classical boundaries would be a little
wider open. The fast tier spends alpha per session on calling something promising, which admits nothing.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from reforward.domain.contract import Contract
from reforward.domain.measurement import Sample
from reforward.domain.subject import Tier
from reforward.domain.verdict import Interval
from reforward.judge.student import quantile

STEP = 1.5
"""Each look comes after so many times the pairs of the look before."""
FUTILITY = 0.05
"""One-sided level at which a session gives up; giving up too early loses a candidate but never admits one."""
FIRST_FAST_LOOK = 2


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
    """Standard error of the mean."""

    def bound(self, level: float) -> float:
        """Half the width of the interval that errs on one side with probability `level`."""
        if self.pairs < 2:
            return math.inf
        return quantile(level, self.pairs - 1) * self.error

    def interval(self, level: float) -> Interval | None:
        """As relative gains; None with fewer than two pairs."""
        if self.pairs < 2:
            return None
        width = self.bound(level)
        return Interval(low=_gain(self.mean - width), mid=_gain(self.mean), high=_gain(self.mean + width))


def pairs(samples: Sequence[Sample]) -> tuple[Pair, ...]:
    """All complete pairs of launches, in order."""
    launches = sorted({sample.launch for sample in samples})
    made = (_pair([sample for sample in samples if sample.launch == launch]) for launch in launches)
    return tuple(pair for pair in made if pair is not None)


def _pair(samples: Sequence[Sample]) -> Pair | None:
    ordered = sorted(samples, key=lambda sample: sample.order)
    ours = [sample.seconds for sample in ordered if sample.arm == "candidate"]
    theirs = [sample.seconds for sample in ordered if sample.arm == "incumbent"]
    if not ours or len(ours) != len(theirs):
        return None
    blocks = tuple(math.log(b / a) for a, b in zip(ours, theirs, strict=True))
    return Pair(effect=statistics.fmean(blocks), blocks=blocks)


def estimate(samples: Sequence[Sample]) -> Estimate:
    """Mean effect and its standard error."""
    found = pairs(samples)
    effects = [pair.effect for pair in found]
    if len(found) < 2:
        return Estimate(pairs=len(found), mean=effects[0] if effects else 0.0, error=math.inf)
    blocks = [block for pair in found for block in pair.blocks]
    inside = statistics.stdev(blocks) / math.sqrt(len(blocks) / len(found))
    spread = max(statistics.stdev(effects), inside, 1e-9)
    return Estimate(pairs=len(found), mean=statistics.fmean(effects), error=spread / math.sqrt(len(found)))


def looks(contract: Contract, tier: Tier) -> tuple[int, ...]:
    """Numbers of pairs after which a session may accept."""
    first = FIRST_FAST_LOOK if tier == "fast" else contract.min_pairs
    last = contract.pairs_at(tier)
    found = [min(first, last)]
    while found[-1] < last:
        found.append(min(last, max(found[-1] + 1, math.floor(found[-1] * STEP))))
    return tuple(found)


def budget(contract: Contract, tier: Tier, confirmations: int) -> float:
    """Error that this session may spend, when `confirmations` slow sessions of the run came before it."""
    if tier == "fast":
        return contract.alpha
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


def _gain(effect: float) -> float:
    return math.expm1(min(effect, 700.0))
