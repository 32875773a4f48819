"""What can be derived by reading: pure queries, nothing stored."""

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
    """The candidate accepted last at the slow tier for this subject and target, under the same numerics class.

    Each accept was measured against the incumbent of its time, so the last one is the best.
    """
    runs = {run.id for run in every(ledger, Run) if run.subject == subject.id and run.target == target.id}
    best: Candidate | None = None
    for turn in every(ledger, Turn):
        if turn.run not in runs:
            continue
        verdict = only(ledger.get(turn.verdict), Verdict)
        if verdict.tier == "slow" and verdict.ruling == "accept":
            same = only(ledger.get(verdict.contract), Contract).numerics == contract.numerics
            best = only(ledger.get(verdict.candidate), Candidate) if same else best
    return best


def every(ledger: Ledger, kind: type[T]) -> list[T]:
    """All records of one kind, oldest first."""
    return [only(record, kind) for record in ledger.records(kind.tag)]


def only(record: Record, kind: type[T]) -> T:
    """The record, which must be of this kind."""
    assert isinstance(record, kind), f"{record.id} is not a {kind.tag}"
    return record
