"""What was proven faster before, tried again first: traffic that comes back, or a shift that another winner suits better."""

from collections.abc import Sequence

from reforward.domain.candidate import Candidate
from reforward.domain.ports import Brief, Idea, Proposer, Unable
from reforward.propose.search import fast_verdicts


class Winners:
    """Past winners and the stock forward, newest first, then what `after` proposes."""

    def __init__(self, winners: Sequence[Candidate], after: Proposer) -> None:
        self.name = "winners"
        self.winners, self.after = tuple(winners), after

    def propose(self, brief: Brief) -> Idea | Unable | None:
        """The next that has no ruling against this incumbent."""
        ruled = fast_verdicts(brief.verdicts)
        for candidate in (*reversed(self.winners), brief.stock):
            if candidate.id != brief.incumbent.id and candidate.id not in ruled:
                return Idea(
                    candidate=candidate,
                    parent=brief.stock.id,
                    author=self.name,
                    reason="proven before: on other traffic",
                )
        return self.after.propose(brief)
