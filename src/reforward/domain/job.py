"""What a guest of a run asked for, and what came of it: so that whoever reconnects finds the result."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from reforward.domain.record import Record

Kind = Literal["measure", "submit", "profile"]


@dataclass(frozen=True, kw_only=True)
class Job(Record):
    """One thing asked of a run. Asking for the same thing again is the same job, whoever asks."""

    tag: ClassVar[str] = "job"

    run: str
    kind: Kind
    candidate: str
    against: str
    """`measure`: the incumbent when it was asked, which is the other arm. Empty for the others."""
    repeat: int = 0
    """0, 1, ...: tells apart measurements that are meant to be made again."""


@dataclass(frozen=True, kw_only=True)
class Answer(Record):
    """How a job ended. Appended after everything that it refers to."""

    tag: ClassVar[str] = "answer"

    job: str
    result: str
    """Id of a `Verdict` (measure: of the fast tier, outside any turn; submit: the last one), `Profile` or `Failed`; or empty."""
    error: str
    """Why there is no result; else empty."""
