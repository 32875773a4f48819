"""Our own trace files: a header line, then rows that hold Mooncake's keys and more. Times in milliseconds."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import msgspec

from reforward.domain.workload import Sampling
from reforward.traffic import mooncake
from reforward.traffic.blocks import BYTES, TOKENS
from reforward.traffic.row import Row

FORMAT = "reforward JSONL (a header line, then Mooncake's keys and more)"
NAME, VERSION = "reforward-trace", 1
OK = 400
"""HTTP statuses below it are answers."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """What holds for all rows of a file."""

    begun_at: str = ""
    """Wall clock of timestamp 0, ISO 8601 with an offset; empty if not known."""
    block_size: int = 0
    """Units a block; 0 if rows have no blocks."""
    block_unit: str = TOKENS
    salt_id: str = ""
    """Names the key of the hashes, so that files with comparable hashes are known; empty for hashes from elsewhere."""
    source: str = ""
    """Where the traffic came from."""

    def line(self) -> str:
        """As it stands in a file."""
        told = {
            "format": NAME, "version": VERSION, "time_unit": "ms", "begun_at": self.begun_at, "block_size": self.block_size,
            "block_unit": self.block_unit, "salt_id": self.salt_id, "source": self.source,
        }  # fmt: skip
        return json.dumps(told, ensure_ascii=False)

    @property
    def begun_s(self) -> float:
        """Unix time of timestamp 0; 0 if not known."""
        return datetime.fromisoformat(self.begun_at).timestamp() if self.begun_at else 0.0


def matches(first: str) -> bool:
    """Whether `first` is our header."""
    try:
        return mooncake.json_object(first).get("format") == NAME
    except ValueError:
        return False


def header(first: str) -> Header:
    """The header, checked; `ValueError` says what is wrong. Keys that are not known are left alone."""
    told = mooncake.json_object(first)
    if told.get("version") != VERSION:
        raise ValueError(f"is version {told.get('version')!r}; this reforward reads version {VERSION}")
    if told.get("time_unit") != "ms" or told.get("block_unit") not in (TOKENS, BYTES):
        raise ValueError("needs time_unit ms and block_unit token or byte")
    size = told.get("block_size")
    if type(size) is not int or not 0 <= size < 1 << 30:
        raise ValueError(f"has the block_size {size!r}, which is no whole number")
    names = ("begun_at", "salt_id", "source")
    texts = {key: told.get(key, "") for key in names}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("begun_at, salt_id and source are texts")
    found = Header(block_size=size, block_unit=cast(str, told["block_unit"]), **cast(dict[str, str], texts))
    try:
        _ = found.begun_s
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"begun_at {found.begun_at[:40]!r} is no time in ISO 8601") from None
    return found


def parse(line: str) -> Row:
    """A row; a call that failed may have no output."""
    told = mooncake.json_object(line)
    row = mooncake.parse(line)
    status = told.get("status", 200)
    if type(status) is not int:
        raise ValueError(f"status {status!r} is no whole number")
    busy = told.get("e2e_ms")
    busy_ms = None if busy is None else mooncake.number(busy, "e2e_ms")
    if busy_ms is not None and busy_ms < 0:
        raise ValueError(f"e2e_ms is negative: {busy_ms:g}")
    company = told.get("in_flight", 0)
    if type(company) is not int or company < 0:
        raise ValueError(f"in_flight {company!r} is no whole number")
    return row._replace(
        in_flight=company,
        sampling=_sampling(told.get("sampling")),
        busy_s=None if busy_ms is None else busy_ms / 1000,
        estimated=told.get("estimated") is True,
        failed=status >= OK or row.output == 0,
    )


def _sampling(value: object) -> Sampling | None:
    if value is None:
        return None
    try:
        return msgspec.convert(value, Sampling)
    except msgspec.ValidationError as error:
        raise ValueError(f"sampling: {error}") from None


def row_line(row: Row, more: Mapping[str, Any] | None = None) -> str:
    """One row as it stands in a file; what is not known is left out."""
    told: dict[str, Any] = {
        "timestamp": round(row.seconds * 1000, 3),
        "input_length": row.prompt,
        "output_length": row.output,
        "hash_ids": list(row.blocks),
    }
    if row.busy_s is not None:
        told["e2e_ms"] = round(row.busy_s * 1000, 3)
    if row.in_flight:
        told["in_flight"] = row.in_flight
    if row.sampling is not None:
        told["sampling"] = sampling_keys(row.sampling)
    return json.dumps({**told, **(more or {})}, allow_nan=False)


def sampling_keys(sampling: Sampling) -> dict[str, Any]:
    """What differs from the defaults."""
    plain = msgspec.to_builtins(sampling)
    usual = msgspec.to_builtins(Sampling())
    return {key: value for key, value in plain.items() if value != usual[key] and not _endless(value)}


def _endless(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
