"""What can be derived by reading: pure queries, nothing stored."""

from collections.abc import Iterator
from typing import TypeVar

from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.ports import Ledger
from reforward.domain.record import Record
from reforward.domain.run import Run, Turn
from reforward.domain.subject import Subject
from reforward.domain.target import Target
from reforward.domain.verdict import Verdict

T = TypeVar("T", bound=Record)


def best_candidate(ledger: Ledger, subject: Subject, target: Target, contract: Contract) -> Candidate | None:
    """The candidate that the slow tier proved furthest above the stock forward, for this subject, target and class.

    A gain is relative to the incumbent of its turn, so gains are multiplied along the chain of incumbents down to the
    stock forward: a later run that began at the stock again cannot displace a better candidate of an earlier one.
    """
    proven: dict[str, float] = {subject.stock: 1.0}
    for turn, verdict in accepted(ledger, subject, target, contract):
        assert verdict.gain is not None, f"{verdict.id} accepts without an interval"
        if turn.incumbent in proven and verdict.candidate != subject.stock:
            proven[verdict.candidate] = proven[turn.incumbent] * (1 + verdict.gain.mid)
    del proven[subject.stock]
    best = max(proven, key=lambda candidate: proven[candidate], default=None)
    return only(ledger.get(best), Candidate) if best else None


def accepted(ledger: Ledger, subject: Subject, target: Target, contract: Contract) -> Iterator[tuple[Turn, Verdict]]:
    """Turns that the slow tier ended with an accept, in order, under any contract of the same numerics class."""
    runs = {run.id for run in every(ledger, Run) if run.subject == subject.id and run.target == target.id}
    contracts = {known.id for known in every(ledger, Contract) if known.numerics == contract.numerics}
    verdicts = {verdict.id: verdict for verdict in every(ledger, Verdict)}
    for turn in every(ledger, Turn):
        verdict = verdicts[turn.verdict]
        if verdict.admits and turn.run in runs and verdict.contract in contracts:
            yield turn, verdict


def every(ledger: Ledger, kind: type[T]) -> list[T]:
    """All records of one kind, oldest first."""
    return [only(record, kind) for record in ledger.records(kind.tag)]


def only(record: Record, kind: type[T]) -> T:
    """The record, which must be of this kind."""
    assert isinstance(record, kind), f"{record.id} is not a {kind.tag}"
    return record
