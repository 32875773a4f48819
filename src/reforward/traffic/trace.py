"""A recorded trace as requests, with the rows that could not be read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request
from reforward.traffic import azure, burstgpt, mooncake, native
from reforward.traffic.blocks import BYTES, in_shares, in_tokens, reused
from reforward.traffic.company import in_flight
from reforward.traffic.native import Header
from reforward.traffic.row import Row
from reforward.traffic.segments import SHAPES

BAD_SHARE = 0.01
"""A trace with a larger share of bad rows is refused."""
MOST_TOKENS = 1 << 30
MOST_SECONDS = 1 << 40
"""No request is longer, and no clock further from its origin: a row beyond them is damaged."""
KNOWN = f"{azure.FORMAT}; {mooncake.FORMAT}; {burstgpt.FORMAT}; {native.FORMAT}"


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
    """Rows with an earlier time than a row above them; the requests are sorted. Ours come in the order in which calls end."""
    failed: int = 0
    """Calls that ended with an error or without a token; they are left out."""
    estimated: int = 0
    """Requests whose token counts were estimated, since their server did not tell."""
    torn: int = 0
    """Files whose last line was cut off, by a crash or a full disk; it is left out."""
    header: Header = field(default_factory=Header)
    """What the blocks of the requests are; of a foreign format what is known about it."""


class Format(NamedTuple):
    """How one file is read."""

    words: str
    parse: Callable[[str], Row]
    skip: int
    """Lines before the first row."""
    header: Header


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What one file held."""

    format: Format
    rows: list[Row]
    bad: list[BadRow]
    torn: bool


def read_trace(path: Path) -> Trace:
    """One file, or the folder of a capture: detect the format by the first line and read all rows.

    Bad rows are counted, more than 1 % are refused.
    """
    parts = [_part(file) for file in (_files(path) if path.is_dir() else [path])]
    rows, header = _joined(path, parts)
    bad = [row for part in parts for row in part.bad]
    _refuse_if_bad(path, len(rows), bad)
    served = [row for row in rows if not row.failed]
    if not served:
        raise BadInput(f"the trace {path} has {len(rows)} calls, and all of them failed")
    return Trace(
        requests=requests_of(served, header),
        bad_rows=tuple(bad),
        source=f"{path.name} ({parts[0].format.words})",
        unsorted=0 if parts[0].format.words == native.FORMAT else _out_of_order([row.seconds for row in rows]),
        failed=len(rows) - len(served),
        estimated=sum(row.estimated for row in served),
        torn=sum(part.torn for part in parts),
        header=header,
    )


def _files(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix == SHAPES and path.is_file())
    filled = [path for path in found if _has_a_line(path)]
    if not filled:
        raise BadInput(
            f"cannot read the trace {folder}: it is no file, and a folder without any {SHAPES} that holds rows"
        )
    return filled


def _has_a_line(path: Path) -> bool:
    """Whether a file got as far as its header before its writer was killed."""
    with path.open("rb") as file:
        return file.readline(1 << 20).endswith(b"\n")


def _joined(path: Path, parts: list[_Part]) -> tuple[list[Row], Header]:
    """Rows of all parts on one clock; hashes count only if all parts have the same key and blocks."""
    headers = [part.format.header for part in parts]
    if len(parts) > 1 and not all(header.begun_at for header in headers):
        raise BadInput(f"the files of {path} do not all say when they begin; read them one at a time")
    origin = min((header.begun_s for header in headers), default=0.0)
    comparable = len({(header.salt_id, header.block_size, header.block_unit) for header in headers}) == 1
    rows = [
        row._replace(seconds=row.seconds + part.format.header.begun_s - origin, blocks=row.blocks if comparable else ())
        for part in parts
        for row in part.rows
    ]
    first = min(headers, key=lambda header: header.begun_s)
    return rows, first if comparable else Header(begun_at=first.begun_at, source=first.source)


def _part(path: Path) -> _Part:
    lines = _lines(path)
    format_ = _detect(path, lines)
    torn = format_.words == native.FORMAT and _cut_off(lines, format_)
    rows: list[Row] = []
    bad: list[BadRow] = []
    for number, line in _rows(lines[:-1] if torn else lines, format_.skip):
        try:
            rows.append(_checked(format_.parse(line)))
        except ValueError as error:
            bad.append(BadRow(line=number, reason=str(error)))
    return _Part(format=format_, rows=rows, bad=bad, torn=torn)


def _cut_off(lines: list[str], format_: Format) -> bool:
    """Whether the file ends in the middle of a row: no line feed behind it, and not readable."""
    if not lines[-1].strip() or len(lines) <= format_.skip:
        return False
    try:
        format_.parse(lines[-1])
    except ValueError:
        return True
    return False


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


def _detect(path: Path, lines: list[str]) -> Format:
    first = next(line for line in lines if line.strip())
    if azure.matches(first):
        return Format(azure.FORMAT, azure.parse, 1, Header())
    if burstgpt.matches(first):
        return Format(burstgpt.FORMAT, burstgpt.parser(first), 1, Header())
    if native.matches(first):
        try:
            return Format(native.FORMAT, native.parse, 1, native.header(first))
        except ValueError as error:
            raise BadInput(f"the header of the trace {path} {error}") from None
    if mooncake.matches(first):
        return Format(mooncake.FORMAT, mooncake.parse, 0, Header(block_size=mooncake.BLOCK))
    raise BadInput(f"the trace {path} starts with {first[:60]!r}, which is no known format; known: {KNOWN}")


def _rows(lines: list[str], skip: int) -> Iterator[tuple[int, str]]:
    filled = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    for place, row in enumerate(filled):
        if place >= skip:
            yield row


def _checked(row: Row) -> Row:
    if not row.failed and (row.prompt < 1 or row.output < 1):
        raise ValueError(f"needs at least one prompt and one output token, has {row.prompt} and {row.output}")
    if row.prompt > MOST_TOKENS or row.output > MOST_TOKENS:
        raise ValueError(f"has more than {MOST_TOKENS:,} tokens")
    if not abs(row.seconds) < MOST_SECONDS:
        raise ValueError(f"lies {row.seconds:g} s from the origin of its clock")
    return row


def _refuse_if_bad(path: Path, good: int, bad: list[BadRow]) -> None:
    if not good and not bad:
        raise BadInput(f"the trace {path} has a header and no rows")
    if len(bad) > BAD_SHARE * (good + len(bad)):
        first = "; ".join(f"line {row.line}: {row.reason}" for row in bad[:3])
        raise BadInput(f"{len(bad)} of {good + len(bad)} rows of {path} are bad, more than {BAD_SHARE:.0%}: {first}")


def _out_of_order(times: list[float]) -> int:
    return sum(at < latest for at, latest in zip(times[1:], accumulate(times, max), strict=False))


def requests_of(rows: Sequence[Row], header: Header) -> tuple[Request, ...]:
    """In order of time, each with what it shares with earlier ones and how many were in service."""
    ordered = sorted(rows, key=lambda row: row.seconds)
    origin = ordered[0].seconds
    covered = in_shares if header.block_unit == BYTES else in_tokens(header.block_size)
    shared = reused([(row.prompt, row.blocks) for row in ordered], covered)
    busy = [row.busy_s for row in ordered if row.busy_s is not None]
    known = len(busy) == len(ordered)
    company = in_flight([row.seconds for row in ordered], busy) if known else [row.in_flight for row in ordered]
    return tuple(
        Request(
            arrival_s=round(row.seconds - origin, 6),
            prompt_tokens=row.prompt,
            output_tokens=row.output,
            reused_tokens=again,
            in_flight=beside,
            sampling=row.sampling,
            blocks=row.blocks,
        )
        for row, again, beside in zip(ordered, shared, company, strict=True)
    )
