"""One run of the loop: what it was asked to do, so that it can be resumed, and the turns it took."""

from dataclasses import dataclass
from typing import ClassVar

from reforward.domain.record import Record


@dataclass(frozen=True, kw_only=True)
class Run(Record):
    """Settings of an `optimize`; candidates, measurements and verdicts refer back to it through proposals."""

    tag: ClassVar[str] = "run"

    subject: str
    target: str
    contract: str
    workload: str
    """What candidates are searched on."""
    held_out: str
    """A later window of the same traffic, on which winners are confirmed."""
    base: str
    """Candidate that is the incumbent of the first turn."""
    proposers: tuple[str, ...]
    started_at: str


@dataclass(frozen=True, kw_only=True)
class Turn(Record):
    """Ties a verdict to the run and the proposal it was made for. Appended together with its verdict."""

    tag: ClassVar[str] = "turn"

    run: str
    proposal: str
    verdict: str
    incumbent: str
    """Candidate that it was compared with."""
