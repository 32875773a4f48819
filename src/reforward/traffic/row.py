"""One line of a trace as all formats give it."""

from typing import NamedTuple

from reforward.domain.workload import Sampling


class Row(NamedTuple):
    """Facts of one call. What a format does not have keeps its default."""

    seconds: float
    """Arrival, from any origin."""
    prompt: int
    output: int
    blocks: tuple[int, ...] = ()
    sampling: Sampling | None = None
    busy_s: float | None = None
    """From arrival to the last token."""
    in_flight: int = 0
    """Requests in service at arrival, itself included; 0: not said."""
    estimated: bool = False
    """Token counts were estimated by whoever recorded them."""
    failed: bool = False
    """Ended with an error or without a token: no request to learn from, and no damaged row either."""


def count(text: str) -> int:
    """A whole number of tokens; `ValueError` says what it is instead."""
    try:
        return digits(text.strip())
    except ValueError:
        raise ValueError(f"{text.strip()[:40]!r} is not a whole number of tokens") from None


def digits(text: str) -> int:
    """Decimal digits alone: `int` also takes signs, underscores and other scripts."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)
