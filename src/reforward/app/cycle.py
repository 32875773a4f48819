"""The loop: one turn asks for an idea, measures it, has it judged, and writes everything down. Read this file first."""

import time

from reforward.app.budget import Budget
from reforward.app.events import CouldNot, Emit, Judged, Promoted, Proposed, Working
from reforward.app.house import House
from reforward.app.journal import Journal
from reforward.domain.candidate import Candidate
from reforward.domain.ports import Proposer, Unable
from reforward.domain.record import short
from reforward.domain.subject import Tier
from reforward.domain.verdict import Verdict


class Cycle:
    """A run in progress. All that it knows lies in the journal, so a killed run goes on where it stopped."""

    def __init__(self, house: House, journal: Journal, proposer: Proposer, budget: Budget, emit: Emit) -> None:
        self.house, self.journal, self.proposer, self.budget, self.emit = house, journal, proposer, budget, emit
        self.started = time.monotonic()
        self.screening_s = 0.0

    def run(self) -> Candidate:
        """Turn until the budget or the ideas end; returns the incumbent, which is the best that was proven."""
        while not self.budget.over(self.elapsed_s) and self.turn():
            pass
        return self.journal.incumbent

    def turn(self) -> bool:
        """Screen the next idea at the fast tier or, when there is none, confirm the best at the slow tier."""
        candidate, tier = self.next_idea(), "fast"
        if candidate is None:
            candidate, tier = self.journal.next_to_confirm(), "slow"
        if candidate is None:
            return False
        verdict = self.decide(candidate, tier)
        if verdict.ruling == "accept" and tier == "slow":
            self.emit(Promoted(candidate=candidate, verdict=verdict))
        return True

    def next_idea(self) -> Candidate | None:
        """The proposer's next candidate, recorded; ideas that cannot be tried here are recorded as skipped."""
        while not self.budget.screening_over(self.elapsed_s, self.journal.screened):
            idea = self.proposer.propose(self.house.brief(self.journal))
            if idea is None:
                return None
            if isinstance(idea, Unable):
                if not self.journal.skip(idea):
                    return None
                self.emit(CouldNot(unable=idea))
                continue
            self.emit(Proposed(idea=idea, order=self.journal.propose(idea)))
            return idea.candidate
        return None

    def decide(self, candidate: Candidate, tier: Tier) -> Verdict:
        """Measure against the incumbent, rule, append: the only way a verdict comes into being."""
        if tier == "slow":
            self.emit(Working(what=f"confirming {short(candidate.id)}: the whole model on held-out traffic"))
        begun = time.monotonic()
        incumbent = self.journal.incumbent
        looks = self.journal.confirmations
        left = self.budget.left(self.elapsed_s)
        facts, outputs = self.house.measure(candidate, incumbent, tier, confirmations=looks, seconds=left)
        verdict = self.house.judge(looks).rule(facts, outputs, self.house.contract)
        self.journal.close_turn(facts, verdict, candidate, incumbent)
        reason = self.journal.reason_for(candidate)
        seconds = time.monotonic() - begun
        self.screening_s += seconds if tier == "fast" else 0.0
        self.emit(Judged(candidate=candidate, reason=reason, tier=tier, verdict=verdict, seconds=seconds))
        return verdict

    @property
    def elapsed_s(self) -> float:
        """Seconds since this process took up the run."""
        return time.monotonic() - self.started
