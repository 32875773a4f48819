"""What a guest may see: types of their own, so that what is hidden cannot be shown by mistake.

Hidden are the numbers of checks, samples and outputs of the held-out traffic, nonces, and everything but the reason code of a
candidate that a check of honesty stopped. Words of a candidate or of its log are data: cut to a length, control characters spelt
out by the engine.
"""

from dataclasses import dataclass

from reforward.app.facts import SessionFacts, session_facts
from reforward.domain.candidate import Proposal
from reforward.domain.job import Kind
from reforward.domain.measurement import Failed, Measurement
from reforward.domain.ports import Ledger
from reforward.domain.profile import Profile
from reforward.domain.record import Record
from reforward.domain.verdict import Interval, Reason, Verdict
from reforward.ledger.views import only

DETAIL, LOG = 1000, 3000
"""Characters."""
CODE_ONLY: frozenset[Reason] = frozenset(("engagement", "impossible", "token-mismatch", "void"))
"""Reasons whose detail would teach how a check of honesty works."""


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """A verdict, without what is hidden."""

    candidate: str
    tier: str
    ruling: str
    reason: str
    detail: str
    gain: Interval | None
    """Relative gain in work per second against the incumbent: 0.25 is 25 % faster."""
    log: str = ""
    """Last lines of a failed candidate's log, as data."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """A measurement at the fast tier: both arms side by side and what the judge would say. It admits nothing."""

    ruling: Ruling
    session: SessionFacts | None
    """None if the candidate failed."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One row of a profile."""

    op: str
    calls: int
    self_ms: float
    share: float
    """Of the whole pass."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """A profile: shares of operations, and of what the profiler does not see."""

    candidate: str
    tier: str
    pass_ms: float
    ops: tuple[Cost, ...]
    other_share: float
    """Python, native code unknown to the profiler, the wire."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One line of a run's history."""

    author: str
    reason: str
    ruling: Ruling


def ruling(ledger: Ledger, verdict: Verdict) -> Ruling:
    """The public part of a verdict."""
    hidden = verdict.reason in CODE_ONLY
    facts = ledger.get(verdict.measurement)
    return Ruling(
        candidate=verdict.candidate,
        tier=verdict.tier,
        ruling=verdict.ruling,
        reason=verdict.reason,
        detail="" if hidden else verdict.detail[:DETAIL],
        gain=None if hidden else verdict.gain,
        log=facts.log[-LOG:] if isinstance(facts, Failed) else "",
    )


def look(ledger: Ledger, verdict: Verdict) -> Look:
    """A fast-tier verdict with its session."""
    facts = ledger.get(verdict.measurement)
    if not isinstance(facts, Measurement) or verdict.reason in CODE_ONLY:
        return Look(ruling=ruling(ledger, verdict), session=None)
    return Look(ruling=ruling(ledger, verdict), session=session_facts(facts))


def costs(profile: Profile) -> Costs:
    """Shares of the pass."""
    rows = tuple(
        Cost(op=op.name, calls=op.calls, self_ms=1e3 * op.self_s, share=op.self_s / profile.seconds)
        for op in profile.ops
    )
    return Costs(
        candidate=profile.candidate,
        tier=profile.tier,
        pass_ms=1e3 * profile.seconds,
        ops=rows,
        other_share=1 - sum(row.share for row in rows),
    )


def failure(failed: Failed) -> Ruling:
    """A candidate that could not be profiled."""
    return Ruling(
        candidate=failed.candidate,
        tier=failed.tier,
        ruling="reject",
        reason="failed",
        detail=f"{failed.stage}: {failed.reason}"[:DETAIL],
        gain=None,
        log=failed.log[-LOG:],
    )


def result(ledger: Ledger, kind: Kind, record: Record) -> Ruling | Look | Costs:
    """What a guest sees of the result of a job."""
    match record:
        case Profile():
            return costs(record)
        case Failed():
            return failure(record)
        case _:
            verdict = only(record, Verdict)
            return look(ledger, verdict) if kind == "measure" else ruling(ledger, verdict)


def tried(ledger: Ledger, proposal: Proposal, verdict: Verdict) -> Tried:
    """A line of history."""
    return Tried(author=proposal.author, reason=proposal.reason[:DETAIL], ruling=ruling(ledger, verdict))
