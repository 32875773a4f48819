"""The ledger as a list: the small implementation, for tests and for commands that must leave no trace."""

from collections.abc import Iterator

from reforward.domain.record import Record
from reforward.ledger.codec import decode
from reforward.ledger.prefix import missing, not_one, parse_prefix


class MemoryLedger:
    """Implements `domain.ports.Ledger`; gone with the process."""

    def __init__(self) -> None:
        self.rows: dict[str, Record] = {}

    def append(self, *records: Record) -> None:
        """Keep all or none of what is not kept yet."""
        new = {record.id: record for record in records}
        self.rows |= {key: record for key, record in new.items() if key not in self.rows}

    def get(self, record_id: str) -> Record:
        """The record with this id."""
        if record_id not in self.rows:
            raise missing(record_id)
        return self.rows[record_id]

    def find(self, prefix: str) -> Record:
        """The one record whose id, or hash, starts with `prefix`."""
        kind, digits = parse_prefix(prefix)
        ids = [
            key for key, row in self.rows.items() if kind in ("", row.tag) and key.rsplit(":", 1)[1].startswith(digits)
        ]
        if len(ids) != 1:
            raise not_one(prefix, ids)
        return self.rows[ids[0]]

    def records(self, tag: str) -> Iterator[Record]:
        """All records of one kind, in the order they were appended."""
        return iter([row for row in self.rows.values() if row.tag == tag])

    def verify(self) -> int:
        """Decode every record's own text again."""
        for record_id, record in self.rows.items():
            decode(record_id, record.tag, record.body)
        return len(self.rows)
