"""Rows of the Azure LLM inference trace 2023 (Patel et al., Splitwise, ISCA 2024)."""

from datetime import datetime

from reforward.traffic.row import Row, count, digits

FORMAT = "Azure CSV (TIMESTAMP,ContextTokens,GeneratedTokens)"
_HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def matches(first: str) -> bool:
    """Whether `first` is the header."""
    return tuple(field.strip() for field in first.split(",")) == _HEADER


def parse(line: str) -> Row:
    """`ValueError` says what is wrong with the row."""
    fields = line.split(",")
    if len(fields) != len(_HEADER):
        raise ValueError(f"has {len(fields)} fields, not {len(_HEADER)}")
    return Row(_seconds(fields[0].strip()), count(fields[1]), count(fields[2]))


def _seconds(text: str) -> float:
    """Wall clock with up to seven decimals, of which datetime reads six."""
    whole, _, fraction = text.partition(".")
    try:
        moment = datetime.fromisoformat(whole + "+00:00")
        return moment.timestamp() + digits(fraction or "0") / 10 ** len(fraction)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a time like 2023-11-16 18:15:46.6805900") from None
