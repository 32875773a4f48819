"""Inputs that are nearly right: bytes, texts and JSON documents with a few things wrong, from a seeded generator."""

import random
from typing import Any

ODD_BYTES = (
    b"",
    b"\0",
    b"\xff",
    b"\x80",
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\x7f\xff\xff\xff",
    b"\n",
    b'"',
)
"""Among them msgpack's largest maps, arrays and binaries."""
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**64, -(2**63), 10**40, 0.5, float("nan"), float("inf"), "", "x", "\0",
    "\u2028", "nan", "9" * 400, [], [[]], {}, {"": None}, [0] * 100, b"", "..", "/etc/passwd", "a/../b", "é",
)  # fmt: skip


def damaged(draw: random.Random, data: bytes) -> bytes:
    """The same bytes with one or two changes: a flip, a cut, an insertion, a repetition, or noise alone."""
    for _ in range(draw.randint(1, 2)):
        at, end = sorted(draw.randint(0, len(data)) for _ in range(2))
        match draw.randrange(6):
            case 0 if data:
                place = draw.randrange(len(data))
                data = data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:at] + draw.choice(ODD_BYTES) + data[at:]
            case 3:
                data = data[:end] + data[at:]
            case 4:
                data = data[:at] + draw.randbytes(draw.randrange(9)) + data[end:]
            case _:
                data = data if draw.random() < 0.9 else draw.randbytes(draw.randrange(64))
    return data


def bent(draw: random.Random, value: Any) -> Any:
    """The same document with one place changed: another value, a key or an item lost, one more, or one moved."""
    if not isinstance(value, (dict, list)) or not value or draw.random() < 0.1:
        return draw.choice(ODD_VALUES)
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = draw.choice(keys)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    match draw.randrange(5):
        case 0:
            del copy[key]
        case 1:
            copy[key] = draw.choice(ODD_VALUES)
        case 2:
            other = draw.choice(keys)
            copy[key], copy[other] = copy[other], copy[key]
        case _:
            copy[key] = bent(draw, copy[key])
    return copy
