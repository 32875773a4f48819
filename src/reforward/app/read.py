"""Verbs that only read: history, one record, differences, the best, exports, traces, this machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reforward.app import diffs, doctor
from reforward.app.config import Config, load_config
from reforward.app.doctor import Check
from reforward.app.evidence import evidence, setting
from reforward.app.facts import SessionFacts, session_facts
from reforward.app.subjects import named
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

    at: str
    """When it was measured, or when the run of a skipped idea began: UTC, ISO 8601."""
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
    setting: tuple[str, ...] = ()
    """Of a run: what it was asked to do."""
    lines: tuple[Line, ...] = ()
    """Of a run: its verdicts and skips."""
    verdicts: tuple[Verdict, ...] = ()
    failures: tuple[Failed, ...] = ()
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
    if limit < 1:
        raise BadInput(f"--limit must be at least 1, got {limit}")
    ledger = open_ledger()
    return _lines(ledger, _entries(every(ledger, Turn), every(ledger, Skipped))[-limit:])


def _entries(turns: Sequence[Turn], skips: Sequence[Skipped]) -> list[Turn | Skipped]:
    """Turns as they came, the skips of each run in front of its first turn, or at the end."""
    waiting: dict[str, list[Skipped]] = {}
    for skip in skips:
        waiting.setdefault(skip.run, []).append(skip)
    entries: list[Turn | Skipped] = []
    for turn in turns:
        entries += [*waiting.pop(turn.run, []), turn]
    return entries + [skip for left in waiting.values() for skip in left]


def _lines(ledger: SqlLedger, entries: Sequence[Turn | Skipped]) -> tuple[Line, ...]:
    return tuple(
        _turn_line(ledger, entry) if isinstance(entry, Turn) else _skip_line(ledger, entry) for entry in entries
    )


def _turn_line(ledger: SqlLedger, turn: Turn) -> Line:
    proposal = only(ledger.get(turn.proposal), Proposal)
    verdict = only(ledger.get(turn.verdict), Verdict)
    facts = ledger.get(verdict.measurement)
    assert isinstance(facts, Measurement | Failed)
    return Line(
        at=facts.started_at,
        run=turn.run,
        subject=_subject(ledger, turn.run).name,
        author=proposal.author,
        reason=proposal.reason,
        candidate=proposal.candidate,
        verdict=verdict,
    )


def _skip_line(ledger: SqlLedger, skip: Skipped) -> Line:
    return Line(
        at=only(ledger.get(skip.run), Run).started_at,
        run=skip.run,
        subject=_subject(ledger, skip.run).name,
        author=skip.author,
        reason=f"skipped {skip.what}: {skip.remedy}",
        candidate="",
        verdict=None,
    )


def _subject(ledger: SqlLedger, run: str) -> Subject:
    return only(ledger.get(only(ledger.get(run), Run).subject), Subject)


def describe(prefix: str) -> Description:
    """One record by id or hash prefix, with the verdicts on it, its failures and who proposed it; a run with its turns."""
    ledger = open_ledger()
    record = ledger.find(prefix)
    if isinstance(record, Run):
        return _run(ledger, record)
    about = ledger.get(record.measurement) if isinstance(record, Verdict) else record
    return Description(
        id=record.id,
        tag=record.tag,
        record=record,
        verdicts=tuple(v for v in every(ledger, Verdict) if record.id in (v.candidate, v.measurement)),
        failures=tuple(f for f in every(ledger, Failed) if f.id == about.id or f.candidate == record.id),
        proposals=tuple(p for p in every(ledger, Proposal) if p.candidate == record.id),
        session=session_facts(about) if isinstance(about, Measurement) else None,
    )


def _run(ledger: SqlLedger, run: Run) -> Description:
    turns = [turn for turn in every(ledger, Turn) if turn.run == run.id]
    skips = [skip for skip in every(ledger, Skipped) if skip.run == run.id]
    lines = _lines(ledger, _entries(turns, skips))
    return Description(id=run.id, tag=run.tag, record=run, setting=setting(ledger, run), lines=lines)


def difference(a: str, b: str | None) -> str:
    """Unified diff to `a` from `b`; without `b` from what `a` was compared with (a verdict) or made from (a candidate)."""
    ledger = open_ledger()
    new = _candidate(ledger, a)
    old = _candidate(ledger, b) if b else _origin(ledger, ledger.find(a), new)
    return diffs.unified(old, new)


def _origin(ledger: SqlLedger, named: Record, candidate: Candidate) -> Candidate:
    found = [turn.incumbent for turn in every(ledger, Turn) if named.id in (turn.id, turn.verdict)]
    found = found or [p.parent for p in every(ledger, Proposal) if p.candidate == candidate.id]
    if not found:
        raise BadInput(f"{short(candidate.id)} was never proposed, so it has no parent; name a second candidate")
    return only(ledger.get(found[-1]), Candidate)


def _candidate(ledger: SqlLedger, prefix: str) -> Candidate:
    """A candidate by prefix; a turn, verdict, proposal, failure or measurement stands for its candidate."""
    record = ledger.find(prefix)
    if isinstance(record, Turn):
        record = ledger.get(record.verdict)
    if isinstance(record, Measurement):
        record = ledger.get(record.candidate.candidate)
    if isinstance(record, (Verdict, Proposal, Failed)):
        record = ledger.get(record.candidate)
    if not isinstance(record, Candidate):
        raise BadInput(f"{prefix!r} is a {record.tag}, not a candidate; `reforward log` lists candidates")
    return record


def best(subject: str) -> tuple[Best, ...]:
    """The candidate that is proven furthest above the stock, on each target of the subjects that `subject` names.

    What `submit` and `optimize` take names one, as does its name in the ledger, or its id.
    """
    ledger = open_ledger()
    found: dict[str, Best] = {}
    for turn in every(ledger, Turn):
        verdict = only(ledger.get(turn.verdict), Verdict)
        if verdict.admits and _means(subject, _subject(ledger, turn.run)):
            row = _best(ledger, turn, verdict)
            contract = only(ledger.get(verdict.contract), Contract)
            leader = best_candidate(ledger, row.subject, row.target, contract)
            if leader is not None and leader.id == row.candidate:
                found[row.target.id] = row
    if not found:
        raise BadInput(_nothing(ledger, subject))
    return tuple(found.values())


def _means(text: str, subject: Subject) -> bool:
    return text in (subject.name, subject.id, short(subject.id)) or _name(text) == subject.name


def _name(text: str) -> str:
    """How the ledger calls what `optimize` takes; empty for what it does not take."""
    try:
        return named(text).name
    except BadInput:
        return ""


def _nothing(ledger: SqlLedger, text: str) -> str:
    """Why there is no best, and what would change that."""
    if _name(text) or any(_means(text, subject) for subject in every(ledger, Subject)):
        subject = text if _name(text) else "SUBJECT"
        return f"nothing was accepted yet for {text!r}; `reforward optimize {subject}` searches for something faster"
    names = dict.fromkeys(subject.name for subject in every(ledger, Subject))
    return f"{text!r} is no subject that the ledger knows; it knows {', '.join(names) or 'none yet'}"


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
    """Write a candidate as a source tree with its evidence, which says so if nothing was proven of it."""
    ledger = open_ledger()
    candidate = _candidate(ledger, prefix)
    return write_tree(candidate, folder, evidence(ledger, candidate))


def trace_summary(file: Path) -> Summary:
    """Lengths and arrivals of a trace file."""
    return summarise(read_trace(file))


def examine() -> tuple[Check, ...]:
    """What this machine has and lacks."""
    return doctor.examine(load_config())


def verify() -> int:
    """Re-derive every id."""
    return open_ledger().verify()
