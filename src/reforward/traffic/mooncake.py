"""Rows of a Mooncake trace (Qin et al., FAST 2025), whose prefix blocks (`hash_ids`) are of 512 tokens."""

import json
from typing import Any, cast

from reforward.traffic.row import Row

FORMAT = "Mooncake JSONL (timestamp in ms, input_length, output_length, hash_ids)"
BLOCK = 512
"""Tokens of a block: said by its authors, not by the file."""
_KEYS = ("timestamp", "input_length", "output_length")


def matches(first: str) -> bool:
    """Whether `first` is a JSON object with a Mooncake key."""
    try:
        row: Any = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and "input_length" in row


def parse(line: str) -> Row:
    """`ValueError` says what is wrong with the row."""
    row = json_object(line)
    timestamp, prompt, output = (number(row.get(key), key) for key in _KEYS)
    if prompt != int(prompt) or output != int(output):
        raise ValueError("lengths are not whole numbers")
    return Row(timestamp / 1000, int(prompt), int(output), blocks=_blocks(row.get("hash_ids", [])))


def json_object(line: str) -> dict[str, object]:
    """The line, which must be a JSON object."""
    try:
        loaded: object = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(loaded, dict):
        raise ValueError("is not a JSON object")
    return cast(dict[str, object], loaded)


def number(value: object, key: str) -> float:
    """A number that a double holds exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is missing or not a number: {value!r}")
    if not abs(value) < 2**53:
        raise ValueError(f"{key} is out of range: {value!r}")
    return value


def _blocks(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError("hash_ids is not a list")
    found = cast(list[object], value)
    if not all(type(item) is int and 0 <= item < 2**63 for item in found):
        raise ValueError("hash_ids holds something else than whole numbers")
    return tuple(cast(list[int], found))
