"""Rows of BurstGPT (Wang et al., arXiv 2401.17644), with six columns or, since its third part, eight."""

import math
from collections.abc import Callable

from reforward.traffic.row import Row, count

FORMAT = "BurstGPT CSV (Timestamp,…,Request tokens,Response tokens,…)"
_TIME, _BUSY, _PROMPT, _OUTPUT = "Timestamp", "Elapsed time", "Request tokens", "Response tokens"


def matches(first: str) -> bool:
    """Whether `first` is the header."""
    return {_TIME, _PROMPT, _OUTPUT} <= set(_fields(first))


def parser(first: str) -> Callable[[str], Row]:
    """Reads rows below the header `first`; `ValueError` says what is wrong with one.

    A response of 0 tokens is a call that failed, in this trace.
    """
    names = _fields(first)
    time, prompt, output = (names.index(name) for name in (_TIME, _PROMPT, _OUTPUT))
    busy = names.index(_BUSY) if _BUSY in names else None

    def parse(line: str) -> Row:
        fields = _fields(line)
        if len(fields) != len(names):
            raise ValueError(f"has {len(fields)} fields, not {len(names)}")
        produced = count(fields[output])
        return Row(
            seconds=_seconds(fields[time]),
            prompt=count(fields[prompt]),
            output=produced,
            busy_s=None if busy is None else _seconds(fields[busy]),
            failed=produced == 0,
        )

    return parse


def _fields(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{text[:40]!r} is not a time in seconds")
    return seconds
