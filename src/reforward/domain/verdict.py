"""The judge's ruling on one measurement under a contract."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from reforward.domain.record import Record

Ruling = Literal["accept", "reject", "unsure"]
Reason = Literal[
    "faster",  # accept: the gain's lower bound clears the contract
    "promising",  # accept at the fast tier: worth the slow tier
    "identical",  # reject: the same source as the incumbent
    "slower",
    "no-gain",  # reject: the upper bound is below the gain that counts
    "undecided",  # unsure: the interval still straddles when the budget ended
    "disturbed",  # unsure: others used the processors meanwhile
    "numerics",  # reject: outputs outside the contract's class
    "token-mismatch",  # reject: a token is not the first maximum of its own row
    "non-finite",
    "shape",  # reject: outputs of another tree, shape or type
    "memory",  # reject: over the contract's ceiling
    "engagement",  # reject: the code that ran is not the candidate
    "impossible",  # reject: faster than the bytes can move
    "void",  # unsure: a null candidate would pass these checks
    "failed",  # reject: see the Failed record
]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Relative gain in work per second: 0.25 is 25 % faster. `low` and `high` at the contract's error budget."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check with the number that decided it."""

    check: str
    value: float
    limit: float
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """Accept, reject or unsure, with the reason, the interval and every check's number."""

    tag: ClassVar[str] = "verdict"

    measurement: str
    """Id of the `Measurement` or `Failed` that was ruled on."""
    contract: str
    candidate: str
    tier: Literal["fast", "slow"]
    ruling: Ruling
    reason: Reason
    detail: str
    gain: Interval | None
    findings: tuple[Finding, ...] = ()

    @property
    def admits(self) -> bool:
        """It makes its candidate the incumbent: an accept of the tier that may promote."""
        return self.tier == "slow" and self.ruling == "accept"
