"""The judge: which checks, in which order. The first check that fails names the reason."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from reforward.domain.calibration import Noise
from reforward.domain.contract import Contract
from reforward.domain.measurement import Failed, Measurement, Output
from reforward.domain.ports import Stopping
from reforward.domain.subject import Tier
from reforward.domain.verdict import Finding, Reason, Verdict
from reforward.judge import honesty
from reforward.judge.arrays import Rows, is_float, rows
from reforward.judge.nulls import null_findings
from reforward.judge.numerics import bit_findings, oracle_findings
from reforward.judge.ruling import of_failure, of_findings, of_gain
from reforward.judge.stopping import StandardStopping, outlook

Check = tuple[Reason, tuple[Finding, ...]]


class StandardJudge:
    """Implements `Judge`.

    `confirmations` is how many slow-tier sessions came before and share the error budget with this one.
    `floors` are the least seconds in which one token can be decoded, by tier (bytes that must move / measured
    bandwidth); a tier without one is not checked against it. `noise` is what the fast tier's workload showed on this
    target with identical code on both sides.
    """

    def __init__(
        self, *, confirmations: int = 0, floors: Mapping[Tier, float] | None = None, noise: Noise | None = None
    ) -> None:
        self.confirmations, self.noise = confirmations, noise
        self.floors = dict(floors or {})

    def stopping(self, contract: Contract, tier: Tier) -> Stopping:
        """The rule that a session at `tier` ends by."""
        return StandardStopping(contract, tier, self.confirmations, self.noise)

    def rule(self, measurement: Measurement | Failed, outputs: Sequence[Output], contract: Contract) -> Verdict:
        """Honesty, then numerics, then memory and times, then gain."""
        if isinstance(measurement, Failed):
            return of_failure(measurement, contract)
        findings: list[Finding] = []
        for reason, made in self._checks(measurement, outputs, contract):
            findings += made
            if not all(finding.passed for finding in made):
                return of_findings(measurement, contract, reason, made, findings)
        seen = outlook(measurement.samples, contract, measurement.tier, self.confirmations, self.noise)
        return of_gain(measurement, contract, seen, findings)

    def _checks(self, measurement: Measurement, outputs: Sequence[Output], contract: Contract) -> Iterator[Check]:
        """Lazily, in order: later checks need what earlier ones established."""
        yield "identical", (_not_identical(measurement),)
        yield "engagement", (honesty.engagement(measurement.candidate, "candidate"),)
        yield "shape", (honesty.structure(outputs),)
        exact = [output for output in outputs if not is_float(output.stock.dtype)]
        parts = [rows(output) for output in outputs if is_float(output.stock.dtype) and 0 not in output.stock.shape]
        yield "non-finite", (honesty.finite_masks(parts),)
        yield "token-mismatch", (honesty.tokens(parts),) if any(part.tokens for part in parts) else ()
        yield "numerics", (_equal_bytes(exact), *_numerics(parts, contract))
        yield "void", (honesty.engagement(measurement.incumbent, "incumbent"), *_nulls(parts, contract))
        yield "memory", (honesty.memory(measurement, contract),)
        yield "impossible", (honesty.times(measurement, self.floors.get(measurement.tier, 0.0)),)


def _not_identical(measurement: Measurement) -> Finding:
    same = measurement.candidate.candidate == measurement.incumbent.candidate
    return Finding(check="differs from incumbent", value=float(not same), limit=1.0, passed=not same)


def _equal_bytes(outputs: Sequence[Output]) -> Finding:
    """Whole numbers and truth values have no rounding: they must be equal under any contract."""
    wrong = sum(bytes(output.candidate.data) != bytes(output.stock.data) for output in outputs)
    return Finding(check="exact outputs", value=float(wrong), limit=0.0, passed=wrong == 0)


def _groups(parts: Sequence[Rows]) -> list[list[Rows]]:
    names = sorted({part.group for part in parts})
    return [[part for part in parts if part.group == name] for name in names]


def _rule(contract: Contract) -> Callable[[Sequence[Rows]], tuple[Finding, ...]]:
    if contract.numerics == "bit-exact":
        return bit_findings
    return lambda parts: oracle_findings(parts, contract)


def _numerics(parts: Sequence[Rows], contract: Contract) -> tuple[Finding, ...]:
    """Per check, the worst group."""
    made = [_rule(contract)(group) for group in _groups(parts)]
    checks = dict.fromkeys(finding.check for group in made for finding in group)
    return tuple(_worst([f for group in made for f in group if f.check == check]) for check in checks)


def _worst(findings: Sequence[Finding]) -> Finding:
    return max(findings, key=lambda finding: (not finding.passed, finding.value - finding.limit))


def _nulls(parts: Sequence[Rows], contract: Contract) -> tuple[Finding, ...]:
    if not parts:
        return (Finding(check="outputs to check", value=0.0, limit=1.0, passed=False),)
    return null_findings(_groups(parts), _rule(contract))
