"""What happened in a run, as values: for the terminal, for logs and for tests."""

from collections.abc import Callable
from dataclasses import dataclass

from reforward.domain.calibration import Calibration
from reforward.domain.candidate import Candidate
from reforward.domain.ports import Idea, Unable
from reforward.domain.subject import Tier
from reforward.domain.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Working:
    """Something that takes time has begun."""

    what: str


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Everything is open: what will be measured, on what, and what to think of it."""

    what: str
    warning: str = ""


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A session goes on after so many pairs of launches."""

    done: int
    most: int


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """The noise of this machine is known."""

    calibration: Calibration
    visible: tuple[tuple[int, float], ...]
    """(pairs of launches, gain that a screening session sees after them every other time)."""


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """A candidate entered the run."""

    idea: Idea
    order: int


@dataclass(frozen=True, kw_only=True)
class CouldNot:
    """An idea that this machine cannot try was recorded as skipped."""

    unable: Unable


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A candidate was measured and ruled on."""

    candidate: Candidate
    reason: str
    """Why it was proposed."""
    tier: Tier
    verdict: Verdict
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Promoted:
    """A candidate became the incumbent."""

    candidate: Candidate
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class AgentNews:
    """An agent was let in, is done, or was stopped."""

    author: str
    what: str


Event = Working | Opened | Paired | Calibrated | Proposed | CouldNot | Judged | Promoted | AgentNews
Emit = Callable[[Event], None]
"""Where events go."""


def ignore(event: Event) -> None:
    """For whoever wants none."""
