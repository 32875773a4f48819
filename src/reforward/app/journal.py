"""A run as the ledger tells it: what was proposed, what was ruled, who is the incumbent, what is left to confirm."""

from collections import Counter
from collections.abc import Sequence

from reforward.domain.candidate import Candidate, Proposal, Skipped
from reforward.domain.measurement import Failed, Measurement
from reforward.domain.ports import Idea, Ledger, Unable
from reforward.domain.run import Run, Turn
from reforward.domain.verdict import Verdict
from reforward.ledger.views import every, only

BEGAN = "what the run began with"
"""Why a run has an incumbent before anything is accepted."""
TRIALS = "rates"
"""Author of sessions that try the judge on known code (`rates.py`): they ask for no promotion."""


class Journal:
    """Reads a run's records once, then keeps up with what it appends. The ledger stays the only memory."""

    def __init__(self, ledger: Ledger, run: Run) -> None:
        self.ledger, self.run = ledger, run
        self.base = only(self.ledger.get(run.base), Candidate)
        self.proposals = [p for p in every(ledger, Proposal) if p.run == run.id]
        turns = every(ledger, Turn)
        self.turns = [turn for turn in turns if turn.run == run.id]
        self.verdicts = [only(self.ledger.get(turn.verdict), Verdict) for turn in self.turns]
        self.skipped = {s.what for s in every(ledger, Skipped) if s.run == run.id}
        self.elsewhere = _confirmations_elsewhere(ledger, run, turns)

    @property
    def screened(self) -> int:
        """Candidates that have a fast-tier verdict in this run."""
        return sum(verdict.tier == "fast" for verdict in self.verdicts)

    @property
    def confirmed(self) -> int:
        """Slow-tier verdicts of this run."""
        return sum(verdict.tier == "slow" for verdict in self.verdicts)

    @property
    def confirmations(self) -> int:
        """Looks that the error budget is shared by: those of this run, and of other runs against the same incumbent.

        Else whoever submits the same candidate again and again, each time as a run of its own, is accepted in the end.
        """
        return self.confirmed + self.elsewhere[self.incumbent.id]

    @property
    def accepted(self) -> list[Verdict]:
        """Verdicts that promoted a candidate in this run."""
        return [verdict for verdict in self.verdicts if verdict.admits]

    @property
    def incumbent(self) -> Candidate:
        """The last candidate that the slow tier accepted in this run, or the one that it began with."""
        accepted = self.accepted
        return only(self.ledger.get(accepted[-1].candidate), Candidate) if accepted else self.base

    @property
    def incumbent_reason(self) -> str:
        """Why the incumbent was proposed."""
        return self.reason_for(self.incumbent) if self.accepted else BEGAN

    def next_to_confirm(self) -> Candidate | None:
        """The most promising candidate against the present incumbent that the slow tier has not seen."""
        seen = {verdict.candidate for verdict in self.verdicts if verdict.tier == "slow"}
        incumbent = self.incumbent.id
        open_ = [
            verdict
            for verdict, turn in zip(self.verdicts, self.turns, strict=True)
            if verdict.tier == "fast"
            and verdict.ruling == "accept"
            and turn.incumbent == incumbent
            and verdict.candidate not in seen
        ]
        best = max(open_, key=lambda verdict: verdict.gain.mid if verdict.gain else 0.0, default=None)
        return only(self.ledger.get(best.candidate), Candidate) if best else None

    def propose(self, idea: Idea) -> int:
        """Record an idea, with its candidate and parent; returns its place in the run."""
        order = next((p.order for p in self.proposals if p.candidate == idea.candidate.id), len(self.proposals))
        proposal = Proposal(
            run=self.run.id,
            candidate=idea.candidate.id,
            parent=idea.parent,
            author=idea.author,
            reason=idea.reason,
            order=order,
        )
        self.ledger.append(idea.candidate, proposal)
        if order == len(self.proposals):
            self.proposals.append(proposal)
        return order

    def skip(self, unable: Unable) -> bool:
        """Record what cannot be tried here; False if it was recorded before (a proposer that repeats itself is done)."""
        if unable.what in self.skipped:
            return False
        self.skipped.add(unable.what)
        self.ledger.append(Skipped(run=self.run.id, author=unable.author, what=unable.what, remedy=unable.remedy))
        return True

    def close_turn(
        self, measurement: Measurement | Failed, verdict: Verdict, candidate: Candidate, incumbent: Candidate
    ) -> None:
        """Append facts, ruling and their place in the run, all or none."""
        turn = Turn(
            run=self.run.id, proposal=self.proposal_of(candidate.id).id, verdict=verdict.id, incumbent=incumbent.id
        )
        self.ledger.append(measurement, verdict, turn)
        self.turns.append(turn)
        self.verdicts.append(verdict)

    def proposal_of(self, candidate: str) -> Proposal:
        """The proposal that brought this candidate into the run."""
        return next(p for p in self.proposals if p.candidate == candidate)

    def reason_for(self, candidate: Candidate) -> str:
        """Why it was proposed."""
        return self.proposal_of(candidate.id).reason


def _confirmations_elsewhere(ledger: Ledger, run: Run, turns: Sequence[Turn]) -> Counter[str]:
    """Slow-tier verdicts of all other runs on this target, by the incumbent that they were made against."""
    runs = {
        other.id
        for other in every(ledger, Run)
        if other.id != run.id and other.target == run.target and TRIALS not in other.proposers
    }
    slow = {verdict.id for verdict in every(ledger, Verdict) if verdict.tier == "slow"}
    return Counter(turn.incumbent for turn in turns if turn.run in runs and turn.verdict in slow)
