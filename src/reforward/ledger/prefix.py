"""Ids as people type them: a whole one, `kind:digits`, or the first digits of the hash."""

import re
from collections.abc import Sequence

from reforward.domain.errors import BadInput

MIN_DIGITS = 4
_TYPED = re.compile(r"(?:(?P<kind>[a-z]+):)?(?:b2:)?(?P<digits>[0-9a-f]+)")


def parse_prefix(prefix: str) -> tuple[str, str]:
    """Kind (empty for any) and digits; `BadInput` for what cannot be the beginning of an id."""
    match = _TYPED.fullmatch(prefix.strip().lower())
    if not match or len(match["digits"]) < MIN_DIGITS:
        raise BadInput(f"{prefix!r} is no id; give at least {MIN_DIGITS} hex digits, as `reforward log` prints them")
    return match["kind"] or "", match["digits"]


def missing(record_id: str) -> BadInput:
    """No record has this id."""
    return BadInput(f"the ledger has no record {record_id!r}; `reforward log` lists what there is")


def not_one(prefix: str, ids: Sequence[str]) -> BadInput:
    """No record, or several, begin like this."""
    if not ids:
        return missing(prefix)
    return BadInput(f"{prefix!r} fits several records: {', '.join(ids[:5])}; give more digits of one")
