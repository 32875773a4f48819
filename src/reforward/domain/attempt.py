"""An agent at work in a run: that it began, and how it ended. What it proposed are proposals under its author's name."""

from dataclasses import dataclass
from typing import ClassVar

from reforward.domain.record import Record


@dataclass(frozen=True, kw_only=True)
class Attempt(Record):
    """An agent was let in. Appended before it starts, so that one without an end is known to have been cut off."""

    tag: ClassVar[str] = "attempt"

    run: str
    author: str
    agent: str
    """What it is: `command:...`, `openai:MODEL`."""
    brief: str
    """Hash of the text that it was told; a blob."""
    started_at: str
    """UTC, ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class Ended(Record):
    """How an attempt ended."""

    tag: ClassVar[str] = "ended"

    attempt: str
    how: str
    """`done`, or why it stopped, in words."""
    seconds: float
    transcript: str
    """Hash of what it said and did, keys taken out; a blob, cut to a size."""
    calls: int = 0
    """Answers of a model; 0 for programs, whose calls are not ours to count."""
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, kw_only=True)
class Spent(Record):
    """What an attempt cost, by the list prices of its provider's models. Missing where nobody knows."""

    tag: ClassVar[str] = "spent"

    attempt: str
    usd: float
