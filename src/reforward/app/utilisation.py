"""How an engine's time was spent: for whom, and how much of it."""

from collections.abc import Sequence
from dataclasses import dataclass

PARTS = 60
"""Equal stretches of time that a timeline tells apart."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """One job, in seconds since the desk was opened."""

    author: str
    begun_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended_s - self.begun_s


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one author has had of the engine."""

    author: str
    seconds: float
    waiting: int


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """Of an engine while agents worked with it."""

    seconds: float
    busy_share: float
    timeline: tuple[float, ...]
    """Busy share of each of `PARTS` equal stretches."""
    authors: tuple[Share, ...]
    build_s: float
    """Seconds of builds beside the engine."""


def utilisation(spans: Sequence[Span], seconds: float, authors: tuple[Share, ...], build_s: float) -> Utilisation:
    """Of spans that do not overlap, within `seconds`."""
    part = seconds / PARTS
    timeline = tuple(_within(spans, at * part, (at + 1) * part) / part if part else 0.0 for at in range(PARTS))
    busy = sum(span.seconds for span in spans)
    return Utilisation(
        seconds=seconds,
        busy_share=busy / seconds if seconds else 0.0,
        timeline=timeline,
        authors=authors,
        build_s=build_s,
    )


def _within(spans: Sequence[Span], begin: float, end: float) -> float:
    return sum(max(0.0, min(span.ended_s, end) - max(span.begun_s, begin)) for span in spans)
