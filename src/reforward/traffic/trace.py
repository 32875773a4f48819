"""A recorded trace as requests, with the rows that could not be read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request
from reforward.traffic import azure, mooncake

BAD_SHARE = 0.01
"""A trace with a larger share of bad rows is refused."""
MOST_TOKENS = 1 << 30
MOST_SECONDS = 1 << 40
"""No request is longer, and no clock further from its origin: a row beyond them is damaged."""
KNOWN = f"{azure.FORMAT}; {mooncake.FORMAT}"


@dataclass(frozen=True, kw_only=True)
class BadRow:
    """One line that is not a request."""

    line: int
    """Counted from 1, header included."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests in arrival order; the first arrives at 0."""

    requests: tuple[Request, ...]
    bad_rows: tuple[BadRow, ...]
    source: str
    """File name and format."""
    unsorted: int = 0
    """Rows with an earlier time than a row above them; the requests are sorted."""


Parsed = tuple[float, int, int]
"""Seconds from any origin, prompt tokens, output tokens."""
Parse = Callable[[str], Parsed]


def read_trace(path: Path) -> Trace:
    """Detect the format by its first line and read all rows; bad ones are counted, more than 1 % are refused."""
    lines = _lines(path)
    format_, parse, skip = _detect(path, lines)
    parsed: list[Parsed] = []
    bad: list[BadRow] = []
    for number, line in _rows(lines, skip):
        try:
            parsed.append(_checked(parse(line)))
        except ValueError as error:
            bad.append(BadRow(line=number, reason=str(error)))
    _refuse_if_bad(path, len(parsed), bad)
    return Trace(
        requests=_requests(parsed),
        bad_rows=tuple(bad),
        source=f"{path.name} ({format_})",
        unsorted=_out_of_order([row[0] for row in parsed]),
    )


def _lines(path: Path) -> list[str]:
    if not (path.is_file() or path.is_fifo() or not path.exists()):
        raise BadInput(f"cannot read the trace {path}: it is no file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"cannot read the trace {path}: {error.strerror}; give the path of a file: {KNOWN}") from error
    except UnicodeDecodeError:
        raise BadInput(f"cannot read the trace {path}: it is binary, not text; known formats: {KNOWN}") from None
    if not text.strip():
        raise BadInput(f"the trace {path} is empty; known formats: {KNOWN}")
    return text.split("\n")


def _detect(path: Path, lines: list[str]) -> tuple[str, Parse, int]:
    first = next(line for line in lines if line.strip())
    if azure.matches(first):
        return azure.FORMAT, azure.parse, 1
    if mooncake.matches(first):
        return mooncake.FORMAT, mooncake.parse, 0
    raise BadInput(f"the trace {path} starts with {first[:60]!r}, which is no known format; known: {KNOWN}")


def _rows(lines: list[str], skip: int) -> Iterator[tuple[int, str]]:
    filled = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    for place, row in enumerate(filled):
        if place >= skip:
            yield row


def _checked(row: Parsed) -> Parsed:
    seconds, prompt, output = row
    if prompt < 1 or output < 1:
        raise ValueError(f"needs at least one prompt and one output token, has {prompt} and {output}")
    if prompt > MOST_TOKENS or output > MOST_TOKENS:
        raise ValueError(f"has more than {MOST_TOKENS:,} tokens")
    if not abs(seconds) < MOST_SECONDS:
        raise ValueError(f"lies {seconds:g} s from the origin of its clock")
    return row


def _refuse_if_bad(path: Path, good: int, bad: list[BadRow]) -> None:
    if not good and not bad:
        raise BadInput(f"the trace {path} has a header and no rows")
    if len(bad) > BAD_SHARE * (good + len(bad)):
        first = "; ".join(f"line {row.line}: {row.reason}" for row in bad[:3])
        raise BadInput(f"{len(bad)} of {good + len(bad)} rows of {path} are bad, more than {BAD_SHARE:.0%}: {first}")


def _out_of_order(times: list[float]) -> int:
    return sum(at < latest for at, latest in zip(times[1:], accumulate(times, max), strict=False))


def _requests(parsed: list[Parsed]) -> tuple[Request, ...]:
    ordered = sorted(parsed, key=lambda row: row[0])
    origin = ordered[0][0]
    return tuple(
        Request(arrival_s=round(at - origin, 6), prompt_tokens=prompt, output_tokens=output)
        for at, prompt, output in ordered
    )
