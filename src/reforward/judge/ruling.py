"""Verdicts in words: what a failure, a failed check, or a gain amounts to."""

import math
from collections.abc import Sequence

from reforward.domain.contract import Contract
from reforward.domain.measurement import Failed, Measurement, Sample
from reforward.domain.subject import Tier
from reforward.domain.verdict import Finding, Interval, Reason, Ruling, Verdict
from reforward.judge.gain import detectable
from reforward.judge.stopping import Outlook


def of_failure(failed: Failed, contract: Contract) -> Verdict:
    """A candidate that failed is rejected; a failing incumbent says nothing about the candidate."""
    ours = failed.arm == "candidate"
    return Verdict(
        measurement=failed.id,
        contract=contract.id,
        candidate=failed.candidate,
        tier=failed.tier,
        ruling="reject" if ours else "unsure",
        reason="failed",
        detail=f"{'' if ours else 'the incumbent '}failed at {failed.stage}: {failed.reason}",
        gain=None,
    )


def of_findings(
    measurement: Measurement,
    contract: Contract,
    reason: Reason,
    broken: Sequence[Finding],
    findings: Sequence[Finding],
) -> Verdict:
    """One check did not hold. Data that cannot tell work from none (`void`) leaves it open."""
    bad = [finding for finding in broken if not finding.passed]
    detail = "; ".join(f"{finding.check}: {finding.value:.4g}, limit {finding.limit:.4g}" for finding in bad)
    ruling: Ruling = "unsure" if reason == "void" else "reject"
    return _verdict(measurement, contract, ruling, reason, detail, None, findings)


def of_gain(measurement: Measurement, contract: Contract, seen: Outlook, findings: Sequence[Finding]) -> Verdict:
    """All checks held: what the times say."""
    ruling, reason, why = _rank(seen, contract, measurement.tier)
    crowded = crowding(measurement.samples)
    if crowded > contract.most_crowded:
        ruling, reason = "unsure", "disturbed"
        why = f": others had {crowded:.0%} of its processors meanwhile; measure again when the machine is quiet"
    count = seen.estimate.pairs
    stated = percent(seen.interval) if seen.interval else f"{math.expm1(seen.estimate.mean):+.1%}, no interval"
    detail = f"{stated} after {count} pair{'s' * (count != 1)} of launches{why}"
    return _verdict(measurement, contract, ruling, reason, detail, seen.interval, findings)


def _rank(seen: Outlook, contract: Contract, tier: Tier) -> tuple[Ruling, Reason, str]:
    match seen.state:
        case "faster" if tier == "fast":
            return "accept", "promising", ": worth the slow tier"
        case "faster":
            return "accept", "faster", f": the lower bound clears {contract.min_gain:.1%}"
        case "slower":
            return "reject", "slower", ""
        case "no-gain":
            return "reject", "no-gain", ": the upper bound is below the gain that counts"
        case "open":
            early = not seen.final and seen.estimate.pairs < contract.min_pairs
            why = f"the time ended before {contract.min_pairs} pairs" if early else _noisy(seen, contract, tier)
            return "unsure", "undecided", f": {why}"


def crowding(samples: Sequence[Sample]) -> float:
    """Share of the processors that others had, over all passes, the long ones for more."""
    seconds = sum(sample.seconds for sample in samples)
    return sum(sample.crowded * sample.seconds for sample in samples) / seconds if seconds > 0 else 0.0


def _noisy(seen: Outlook, contract: Contract, tier: Tier) -> str:
    words = "still on both sides of the gain that counts"
    width = seen.estimate.bound(seen.level)
    if not math.isfinite(width):
        return words
    return f"{words}; with such noise a gain of {detectable(width, contract, tier):.0%} is seen every other time"


def percent(interval: Interval) -> str:
    """`+12.3% [+10.0%, +14.7%]`."""
    return f"{interval.mid:+.1%} [{interval.low:+.1%}, {interval.high:+.1%}]"


def _verdict(
    measurement: Measurement,
    contract: Contract,
    ruling: Ruling,
    reason: Reason,
    detail: str,
    gain: Interval | None,
    findings: Sequence[Finding],
) -> Verdict:
    return Verdict(
        measurement=measurement.id,
        contract=contract.id,
        candidate=measurement.candidate.candidate,
        tier=measurement.tier,
        ruling=ruling,
        reason=reason,
        detail=detail,
        gain=gain,
        findings=tuple(findings),
    )
