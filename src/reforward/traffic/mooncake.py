"""Rows of a Mooncake trace (Qin et al., FAST 2025). Prefix blocks (`hash_ids`) are checked, not yet kept."""

import json
from typing import Any, cast

FORMAT = "Mooncake JSONL (timestamp in ms, input_length, output_length, hash_ids)"
_KEYS = ("timestamp", "input_length", "output_length")


def matches(first: str) -> bool:
    """Whether `first` is a JSON object with a Mooncake key."""
    try:
        row: Any = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and "input_length" in row


def parse(line: str) -> tuple[float, int, int]:
    """(seconds, prompt tokens, output tokens); `ValueError` says what is wrong with the row."""
    try:
        loaded: object = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(loaded, dict):
        raise ValueError("is not a JSON object")
    row = cast(dict[str, object], loaded)
    timestamp, prompt, output = (_number(row.get(key), key) for key in _KEYS)
    if not isinstance(row.get("hash_ids", []), list):
        raise ValueError("hash_ids is not a list")
    if prompt != int(prompt) or output != int(output):
        raise ValueError("lengths are not whole numbers")
    return timestamp / 1000, int(prompt), int(output)


def _number(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is missing or not a number: {value!r}")
    if not abs(value) < 2**53:
        raise ValueError(f"{key} is out of range: {value!r}")
    return value
