"""Candidates that come from outside: from a person, a program, a model. They are tried in the order in which they came."""

from reforward.domain.ports import Brief, Idea


class Inbox:
    """A proposer that yields what was put into it. What the run has ruled on is passed over."""

    def __init__(self) -> None:
        self.name = "inbox"
        self.ideas: list[Idea] = []

    def put(self, idea: Idea) -> None:
        """To be tried next, after those that were put in before."""
        self.ideas.append(idea)

    def propose(self, brief: Brief) -> Idea | None:
        """The first idea that this run has not ruled on; None for the time being if there is none."""
        ruled = {verdict.candidate for verdict in brief.verdicts}
        return next((idea for idea in self.ideas if idea.candidate.id not in ruled), None)
