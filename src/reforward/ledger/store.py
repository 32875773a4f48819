"""The ledger in a database: SQLite by default, append-only, durable before `append` returns."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Row, create_engine, event, text
from sqlalchemy.exc import DatabaseError, OperationalError

from reforward.domain.errors import BadInput, LedgerCorrupt, Unavailable
from reforward.domain.record import Record
from reforward.ledger.blobs import Blobs
from reforward.ledger.codec import decode
from reforward.ledger.migrations import migrate

BUSY_S = 30.0
"""How long a writer waits for another one."""
MIN_PREFIX = 4


class SqlLedger:
    """Implements `domain.ports.Ledger` over SQLAlchemy. `where` is a file for SQLite, or a database URL."""

    def __init__(self, where: Path | str, blobs: Path) -> None:
        if isinstance(where, Path):
            where.parent.mkdir(parents=True, exist_ok=True)
        self.where = where
        self.blobs = Blobs(blobs)
        self.engine = _engine(where)
        with self._begin() as connection:
            migrate(connection)

    def append(self, *records: Record) -> None:
        """Store all or none; a record that is there already is passed over."""
        rows = [
            {"id": record.id, "tag": record.tag, "body": record.body, "at": datetime.now(UTC).isoformat()}
            for record in records
        ]
        with self._begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO records (id, tag, body, at) VALUES (:id, :tag, :body, :at) ON CONFLICT (id) DO NOTHING"
                ),
                rows,
            )

    def get(self, record_id: str) -> Record:
        """The record with this id."""
        rows = self._read("SELECT id, tag, body FROM records WHERE id = :id", id=record_id)
        if not rows:
            raise BadInput(f"the ledger has no record {record_id!r}")
        return decode(*rows[0])

    def find(self, prefix: str) -> Record:
        """The one record whose id, or hash, starts with `prefix`."""
        digits = prefix.rsplit(":", 1)[-1]
        if len(digits) < MIN_PREFIX or not digits.isalnum():
            raise BadInput(f"{prefix!r} is no id; give at least {MIN_PREFIX} digits of the hash")
        kind = prefix.split(":")[0] if ":" in prefix else "%"
        rows = self._read("SELECT id, tag, body FROM records WHERE id LIKE :like", like=f"{kind}:b2:{digits}%")
        if len(rows) != 1:
            ids = ", ".join(row[0] for row in rows[:5])
            raise BadInput(f"{prefix!r} fits {len(rows)} records{': ' + ids if ids else ''}; give more digits of one")
        return decode(*rows[0])

    def records(self, tag: str) -> Iterator[Record]:
        """All records of one kind, in the order they were appended."""
        for row in self._read("SELECT id, tag, body FROM records WHERE tag = :tag ORDER BY seq", tag=tag):
            yield decode(*row)

    def verify(self) -> int:
        """Re-derive every id and every blob's hash; returns how many."""
        count = 0
        for row in self._read("SELECT id, tag, body FROM records ORDER BY seq"):
            decode(*row)
            count += 1
        return count + self.blobs.verify()

    def _read(self, query: str, **values: Any) -> list[Row[Any]]:
        with _plain_words(self.where), self.engine.connect() as connection:
            return list(connection.execute(text(query), values).all())

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        with _plain_words(self.where), self.engine.begin() as connection:
            yield connection


def _engine(where: Path | str) -> Engine:
    engine = create_engine(f"sqlite:///{where}" if isinstance(where, Path) else where)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _configure_sqlite(connection: Any, _: object) -> None:
    """Write-ahead log, waits instead of errors, every commit on disk; transactions begin when we say so."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={int(BUSY_S * 1000)}"):
        connection.execute(f"PRAGMA {pragma}")


@contextmanager
def _plain_words(where: Path | str) -> Iterator[None]:
    """Database errors that a user can act on."""
    try:
        yield
    except OperationalError as error:
        reason = str(error.orig)
        if "locked" in reason:
            raise Unavailable(f"the ledger {where} is locked by another process for over {BUSY_S:.0f} s") from None
        raise Unavailable(
            f"the ledger {where} cannot be used: {reason}; check the path, rights and free disk"
        ) from None
    except DatabaseError as error:
        raise LedgerCorrupt(f"the ledger {where} is damaged: {error.orig}; restore a copy or move it away") from None
