"""When a session has seen enough. A pure function of its samples, so that the verdict finds the same answer again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reforward.domain.calibration import Noise
from reforward.domain.contract import Contract
from reforward.domain.measurement import Sample
from reforward.domain.subject import Tier
from reforward.domain.verdict import Interval
from reforward.judge.gain import FUTILITY, Estimate, estimate, level, needed

State = Literal["faster", "no-gain", "slower", "open"]


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What the samples so far amount to."""

    state: State
    estimate: Estimate
    level: float
    """One-sided level that the interval is stated at."""
    final: bool
    """No more pairs will come."""

    @property
    def interval(self) -> Interval | None:
        """Relative gain; None if nothing is known about the spread."""
        return self.estimate.interval(self.level)


def outlook(
    samples: Sequence[Sample], contract: Contract, tier: Tier, confirmations: int, noise: Noise | None = None
) -> Outlook:
    """Decide on what is there; `noise` counts at the fast tier only.

    faster: at a look, the lower bound clears the contract (fast tier: clears zero, and the middle clears what the
    tier can see). no-gain, slower: as soon as there is an interval, its upper bound falls short of it, or of zero.
    """
    now = estimate(samples, noise if tier == "fast" else None)
    at_look = level(contract, tier, confirmations, now.pairs)
    state = _state(now, at_look, contract, tier)
    stated = at_look if at_look is not None and state in ("faster", "open") else FUTILITY[tier]
    return Outlook(state=state, estimate=now, level=stated, final=now.pairs >= contract.pairs_at(tier))


def _state(now: Estimate, at_look: float | None, contract: Contract, tier: Tier) -> State:
    goal = needed(contract, tier)
    if at_look is not None and _wins(now, at_look, goal, tier):
        return "faster"
    high = now.mean + now.bound(FUTILITY[tier])
    if high < goal:
        return "slower" if high < 0 else "no-gain"
    return "open"


def _wins(now: Estimate, at_look: float, goal: float, tier: Tier) -> bool:
    low = now.mean - now.bound(at_look)
    assert not math.isnan(low), now
    clears = low > 0 and now.mean >= goal if tier == "fast" else low > goal
    return clears and now.middle >= goal


class StandardStopping:
    """Implements `Stopping`: stop at a clear winner, a clear loser, or the last pair."""

    def __init__(self, contract: Contract, tier: Tier, confirmations: int, noise: Noise | None = None) -> None:
        self.contract, self.confirmations, self.noise = contract, confirmations, noise
        self.tier: Tier = tier

    def observe(self, samples: Sequence[Sample]) -> Literal["continue", "stop"]:
        """Asked after each completed pair of launches."""
        seen = outlook(samples, self.contract, self.tier, self.confirmations, self.noise)
        return "stop" if seen.final or seen.state != "open" else "continue"
