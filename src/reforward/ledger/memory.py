"""The ledger as a list: the small implementation, for tests and for commands that must leave no trace."""

from collections.abc import Iterator

from reforward.domain.errors import BadInput
from reforward.domain.record import Record
from reforward.ledger.codec import decode


class MemoryLedger:
    """Implements `domain.ports.Ledger`; gone with the process."""

    def __init__(self) -> None:
        self.rows: dict[str, Record] = {}

    def append(self, *records: Record) -> None:
        """Keep what is not kept yet."""
        for record in records:
            self.rows.setdefault(record.id, record)

    def get(self, record_id: str) -> Record:
        """The record with this id."""
        if record_id not in self.rows:
            raise BadInput(f"the ledger has no record {record_id!r}")
        return self.rows[record_id]

    def find(self, prefix: str) -> Record:
        """The one record whose id, or hash, starts with `prefix`."""
        found = [
            row for key, row in self.rows.items() if key.startswith(prefix) or key.rsplit(":", 1)[1].startswith(prefix)
        ]
        if len(found) != 1:
            raise BadInput(f"{prefix!r} fits {len(found)} records; give more digits of one")
        return found[0]

    def records(self, tag: str) -> Iterator[Record]:
        """All records of one kind, in the order they were appended."""
        return iter([row for row in self.rows.values() if row.tag == tag])

    def verify(self) -> int:
        """Decode every record's own text again."""
        for record_id, record in self.rows.items():
            decode(record_id, record.tag, record.body)
        return len(self.rows)
