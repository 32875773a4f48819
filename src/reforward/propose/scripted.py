"""A proposer that replays a list: for tests, for demonstrations, for measuring candidates that lie in a folder."""

from collections.abc import Sequence

from reforward.domain.ports import Brief, Idea, Unable


class Scripted:
    """Yields each idea once, in order. Ideas of candidates that the run has ruled on are passed over."""

    def __init__(self, ideas: Sequence[Idea | Unable], name: str = "scripted") -> None:
        self.name = name
        self.ideas = tuple(ideas)

    def propose(self, brief: Brief) -> Idea | Unable | None:
        """The first idea that this run has not heard."""
        ruled = {verdict.candidate for verdict in brief.verdicts}
        return next((idea for idea in self.ideas if not _heard(idea, ruled, brief.skipped)), None)


def _heard(idea: Idea | Unable, ruled: set[str], skipped: Sequence[str]) -> bool:
    return idea.what in skipped if isinstance(idea, Unable) else idea.candidate.id in ruled
