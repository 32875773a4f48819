"""Verbs that only read: history, one record, differences, the best, exports, traces, this machine."""

from dataclasses import dataclass
from pathlib import Path

from reforward.app import diffs, doctor
from reforward.app.config import Config, load_config
from reforward.app.doctor import Check
from reforward.app.facts import SessionFacts, session_facts
from reforward.app.trees import write_tree
from reforward.domain.candidate import Candidate, Proposal, Skipped
from reforward.domain.contract import Contract
from reforward.domain.errors import BadInput
from reforward.domain.measurement import Failed, Measurement
from reforward.domain.record import Record, short
from reforward.domain.run import Run, Turn
from reforward.domain.subject import Subject
from reforward.domain.target import Target
from reforward.domain.verdict import Verdict
from reforward.ledger.store import SqlLedger
from reforward.ledger.views import best_candidate, every, only
from reforward.traffic.summary import Summary, summarise
from reforward.traffic.trace import read_trace


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of history."""

    run: str
    subject: str
    author: str
    reason: str
    candidate: str
    verdict: Verdict | None
    """None for an idea that was skipped."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """A record and what refers to it."""

    id: str
    tag: str
    record: Record
    verdicts: tuple[Verdict, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    session: SessionFacts | None = None


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best accepted candidate of one subject on one target."""

    subject: Subject
    target: Target
    candidate: str
    reason: str
    verdict: Verdict
    session: SessionFacts


def open_ledger(config: Config | None = None) -> SqlLedger:
    """The ledger of this configuration."""
    config = config or load_config()
    return SqlLedger(config.ledger, config.blobs)


def history(limit: int) -> tuple[Line, ...]:
    """Verdicts and skips, oldest first, the newest `limit` of them."""
    ledger = open_ledger()
    names = {run.id: only(ledger.get(run.subject), Subject).name for run in every(ledger, Run)}
    proposals = {proposal.id: proposal for proposal in every(ledger, Proposal)}
    lines = [_turn_line(ledger, turn, proposals[turn.proposal], names) for turn in every(ledger, Turn)]
    lines = lines[-limit:]
    skips = [_skip_line(skip, names) for skip in every(ledger, Skipped)]
    return (*skips[-limit:], *lines)[-limit:] if limit > 0 else ()


def _turn_line(ledger: SqlLedger, turn: Turn, proposal: Proposal, names: dict[str, str]) -> Line:
    return Line(
        run=turn.run,
        subject=names[turn.run],
        author=proposal.author,
        reason=proposal.reason,
        candidate=proposal.candidate,
        verdict=only(ledger.get(turn.verdict), Verdict),
    )


def _skip_line(skip: Skipped, names: dict[str, str]) -> Line:
    reason = f"skipped {skip.what}: {skip.remedy}"
    return Line(run=skip.run, subject=names[skip.run], author=skip.author, reason=reason, candidate="", verdict=None)


def describe(prefix: str) -> Description:
    """One record by id or hash prefix, with the verdicts on it and who proposed it."""
    ledger = open_ledger()
    record = ledger.find(prefix)
    about = record.measurement if isinstance(record, Verdict) else record.id
    verdicts = tuple(v for v in every(ledger, Verdict) if record.id in (v.candidate, v.measurement))
    proposals = tuple(p for p in every(ledger, Proposal) if p.candidate == record.id)
    measured = ledger.get(about) if about.startswith("measurement:") else None
    session = session_facts(measured) if isinstance(measured, Measurement) else None
    return Description(
        id=record.id, tag=record.tag, record=record, verdicts=verdicts, proposals=proposals, session=session
    )


def difference(a: str, b: str | None) -> str:
    """Unified diff from `b`, or from the parent of `a`, to `a`."""
    ledger = open_ledger()
    new = _candidate(ledger, a)
    old = _candidate(ledger, b) if b else _parent(ledger, new)
    return diffs.unified(old, new)


def _parent(ledger: SqlLedger, candidate: Candidate) -> Candidate:
    parents = [p.parent for p in every(ledger, Proposal) if p.candidate == candidate.id]
    if not parents:
        raise BadInput(f"{short(candidate.id)} was never proposed, so it has no parent; name a second candidate")
    return _candidate(ledger, parents[-1])


def _candidate(ledger: SqlLedger, prefix: str) -> Candidate:
    """A candidate by prefix; a verdict or proposal stands for its candidate."""
    record = ledger.find(prefix)
    if isinstance(record, (Verdict, Proposal, Failed)):
        record = ledger.get(record.candidate)
    if not isinstance(record, Candidate):
        raise BadInput(f"{prefix!r} is a {record.tag}, not a candidate; `reforward log` lists candidates")
    return record


def best(subject: str) -> tuple[Best, ...]:
    """The candidate that is proven furthest above the stock, on each target of the subjects with this name (or id)."""
    ledger = open_ledger()
    found: dict[str, Best] = {}
    for turn in every(ledger, Turn):
        verdict = only(ledger.get(turn.verdict), Verdict)
        if verdict.tier == "slow" and verdict.ruling == "accept":
            row = _best(ledger, turn, verdict)
            named = subject in (row.subject.name, row.subject.id, short(row.subject.id))
            contract = only(ledger.get(verdict.contract), Contract)
            leader = best_candidate(ledger, row.subject, row.target, contract) if named else None
            if leader is not None and leader.id == row.candidate:
                found[row.target.id] = row
    if not found:
        raise BadInput(f"nothing was accepted yet for {subject!r}; run `reforward optimize {subject}`")
    return tuple(found.values())


def _best(ledger: SqlLedger, turn: Turn, verdict: Verdict) -> Best:
    run = only(ledger.get(turn.run), Run)
    return Best(
        subject=only(ledger.get(run.subject), Subject),
        target=only(ledger.get(run.target), Target),
        candidate=verdict.candidate,
        reason=only(ledger.get(turn.proposal), Proposal).reason,
        verdict=verdict,
        session=session_facts(only(ledger.get(verdict.measurement), Measurement)),
    )


def export(prefix: str, folder: Path) -> tuple[Path, ...]:
    """Write a candidate as a source tree with its evidence; refused for what no verdict accepted at the slow tier."""
    ledger = open_ledger()
    candidate = _candidate(ledger, prefix)
    accepted = [
        verdict
        for verdict in every(ledger, Verdict)
        if verdict.candidate == candidate.id and verdict.tier == "slow" and verdict.ruling == "accept"
    ]
    if not accepted:
        raise BadInput(
            f"{short(candidate.id)} has no slow-tier accept; submit it first, or copy it from `reforward diff`"
        )
    return write_tree(candidate, folder, evidence(ledger, accepted[-1]))


def evidence(ledger: SqlLedger, verdict: Verdict) -> str:
    """What was proven, on what, and how to check it, as plain lines."""
    measurement = only(ledger.get(verdict.measurement), Measurement)
    contract = only(ledger.get(verdict.contract), Contract)
    target = only(ledger.get(measurement.target), Target)
    subject = only(ledger.get(target.subject), Subject)
    gain = verdict.gain
    assert gain is not None
    lines = [
        f"candidate {verdict.candidate}",
        f"subject {subject.name} ({subject.dtype}), weights {subject.weights}",
        f"machine {target.machine.cpu}, {target.machine.cores} cores, {target.machine.isa}; {', '.join(target.software)}",
        f"launch {target.launch.threads} threads, {target.launch.pages} pages",
        f"against {measurement.incumbent.candidate}",
        f"gain {gain.mid:+.1%}, interval [{gain.low:+.1%}, {gain.high:+.1%}], counts from {contract.min_gain:.0%}",
        f"numerics {contract.numerics}",
        *(f"check {f.check}: {f.value:.4g} (limit {f.limit:.4g})" for f in verdict.findings),
        f"verdict {verdict.id}",
        f"measurement {measurement.id} at {measurement.started_at}, nonce {measurement.nonce}",
    ]
    return "\n".join(lines) + "\n"


def trace_summary(file: Path) -> Summary:
    """Lengths and arrivals of a trace file."""
    return summarise(read_trace(file))


def examine() -> tuple[Check, ...]:
    """What this machine has and lacks."""
    return doctor.examine(load_config())


def verify() -> int:
    """Re-derive every id."""
    return open_ledger().verify()
