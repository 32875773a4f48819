"""The base of every value: frozen, keyword-only, named by a tagged hash of its content."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

from reforward.domain.errors import BadInput

HASH_BYTES = 16
LATER: Mapping[str, bool] = {"later": True}
"""Metadata of a field that a record gained: left out of the canonical form while the field holds its default.

So rows that were written before the field existed are read with it at its default, and keep their ids.
"""


def canonical_json(value: object) -> str:
    """The one text form that is hashed: sorted keys, no spaces, no NaN. Changing it changes every id."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def plain(value: object) -> Any:
    """Dataclasses, tuples and mappings as dictionaries and lists: what JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(_as_declared(f, getattr(value, f.name))) for f in _told(value)}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in cast(Sequence[object], value)]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in cast(dict[object, object], value).items()}
    return value


def _told(value: Any) -> Iterator["dataclasses.Field[Any]"]:
    """The fields that are part of the content."""
    for field in dataclasses.fields(value):
        if not (field.metadata.get("later") and getattr(value, field.name) == field.default):
            yield field


def _as_declared(field: "dataclasses.Field[Any]", value: object) -> object:
    """A whole number in a field of floats is a float, so that 1 and 1.0 give the same id."""
    if "float" not in str(field.type):
        return value
    if isinstance(value, tuple):
        return tuple(float(item) if type(item) is int else item for item in cast(tuple[object, ...], value))
    return float(value) if type(value) is int else value


def content_hash(data: bytes) -> str:
    """Hex BLAKE2b of `data`; collision-resistant at 128 bits."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).hexdigest()


def content_id(tag: str, text: str) -> str:
    """`<tag>:b2:<hex>`: the kind, the hash function, the hash. The tag is part of what is hashed."""
    return f"{tag}:b2:" + content_hash(f"{tag}\0{text}".encode())


def refuse_half_characters(what: str, text: str) -> None:
    """Python's strings can hold lone surrogates, which no encoding and no other program can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        near = text[max(0, error.start - 20) : error.end + 20]
        raise BadInput(f"{what} holds {near!r}, which is no text; write it as UTF-8") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A value whose identity is its content. Subclasses set `tag` and hold only JSON-shaped fields."""

    tag: ClassVar[str]

    @cached_property
    def body(self) -> str:
        """Canonical JSON of the fields: what the ledger stores and what `id` hashes."""
        text = canonical_json(self)
        refuse_half_characters(f"a {self.tag}", text)
        return text

    @cached_property
    def id(self) -> str:
        """Tagged content hash, equal for equal content wherever it was made."""
        return content_id(self.tag, self.body)


def short(record_id: str) -> str:
    """The first ten hex digits of an id, for people."""
    return record_id.rsplit(":", 1)[-1][:10]
