"""Where the time of a pass goes, operation by operation, as the worker itself tells it: a help to authors, never evidence."""

from dataclasses import dataclass
from typing import ClassVar

from reforward.domain.record import Record
from reforward.domain.subject import Tier


@dataclass(frozen=True, kw_only=True)
class Op:
    """One kind of operation in a pass."""

    name: str
    calls: int
    self_s: float
    """Seconds inside it, without what it calls, summed over all calls."""


@dataclass(frozen=True, kw_only=True)
class Profile(Record):
    """The operations of one pass of one candidate, most expensive first."""

    tag: ClassVar[str] = "profile"

    tier: Tier
    target: str
    workload: str
    candidate: str
    seconds: float
    """Of the pass, by the client's clock, with the profiler's own cost. What `ops` do not add up to is everything else:
    Python, native code that the profiler does not see, and the wire."""
    ops: tuple[Op, ...]
    started_at: str
    """UTC, ISO 8601."""
