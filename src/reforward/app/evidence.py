"""What was measured, under which settings, and what was ruled, as plain lines that a record's readers can check."""

from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.measurement import Measurement
from reforward.domain.ports import Ledger
from reforward.domain.record import short
from reforward.domain.run import Run, Turn
from reforward.domain.subject import Subject
from reforward.domain.target import Target
from reforward.domain.verdict import Verdict
from reforward.domain.workload import Workload
from reforward.ledger.views import every, only

UNPROVEN = "UNPROVEN: no verdict at the slow tier accepts this candidate; nothing here says that it is faster or right"


def evidence(ledger: Ledger, candidate: Candidate) -> str:
    """For each subject the last slow-tier accept with its setting; without one, that it is unproven, and every verdict."""
    verdicts = [verdict for verdict in every(ledger, Verdict) if verdict.candidate == candidate.id]
    proven = {_subject(ledger, verdict): verdict for verdict in verdicts if verdict.admits}
    told = [_proof(ledger, verdict) for verdict in proven.values()] or [
        [UNPROVEN, *(f"verdict {v.id}: {v.tier} {v.ruling} ({v.reason}): {v.detail}" for v in verdicts)]
    ]
    return "\n".join("\n".join([f"candidate {candidate.id}", *lines, ""]) for lines in told)


def _subject(ledger: Ledger, verdict: Verdict) -> str:
    measurement = only(ledger.get(verdict.measurement), Measurement)
    return only(ledger.get(measurement.target), Target).subject


def _proof(ledger: Ledger, verdict: Verdict) -> list[str]:
    measurement = only(ledger.get(verdict.measurement), Measurement)
    contract = only(ledger.get(verdict.contract), Contract)
    gain = verdict.gain
    assert gain is not None
    return [
        *_where(ledger, measurement.target),
        f"traffic {only(ledger.get(measurement.workload), Workload).words}",
        f"tier {verdict.tier}: the whole model",
        f"against {opponent(ledger, measurement)}",
        f"gain {gain.mid:+.1%}, interval [{gain.low:+.1%}, {gain.high:+.1%}], counts from {contract.min_gain:.0%}",
        f"numerics {contract.numerics}",
        *(f"check {f.check}: {f.value:.4g} (limit {f.limit:.4g})" for f in verdict.findings),
        f"verdict {verdict.id}",
        f"measurement {measurement.id} at {measurement.started_at}, nonce {measurement.nonce}",
    ]


def _where(ledger: Ledger, target_id: str) -> list[str]:
    target = only(ledger.get(target_id), Target)
    subject = only(ledger.get(target.subject), Subject)
    return [
        f"subject {subject.name} ({subject.dtype}), weights {subject.weights}",
        f"machine {target.machine.words}; {', '.join(target.software)}",
        f"launch {target.launch.words}",
    ]


def opponent(ledger: Ledger, measurement: Measurement) -> str:
    """Who the incumbent was: its id, and whether it was the stock forward."""
    target = only(ledger.get(measurement.target), Target)
    stock = only(ledger.get(target.subject), Subject).stock
    name = measurement.incumbent.candidate
    return f"{name}, {'the stock forward' if name == stock else 'an earlier winner'}"


def setting(ledger: Ledger, run: Run) -> tuple[str, ...]:
    """What a run was asked to do."""
    contract = only(ledger.get(run.contract), Contract)
    turns = [turn for turn in every(ledger, Turn) if turn.run == run.id]
    return (
        *_where(ledger, run.target),
        f"searched on {only(ledger.get(run.workload), Workload).words}",
        f"gain that counts {contract.min_gain:.0%}, numerics {contract.numerics}",
        f"began {run.started_at} at {short(run.base)}, by {', '.join(run.proposers)}; {len(turns)} verdicts",
    )
