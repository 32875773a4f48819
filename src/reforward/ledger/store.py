"""The ledger in a database: SQLite by default, append-only, durable before `append` returns."""

import sqlite3
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Row, create_engine, event, text
from sqlalchemy.exc import DatabaseError, OperationalError

from reforward.domain.errors import LedgerCorrupt, Unavailable
from reforward.domain.record import Record
from reforward.ledger.blobs import Blobs
from reforward.ledger.codec import decode
from reforward.ledger.migrations import migrate
from reforward.ledger.prefix import missing, not_one, parse_prefix

BUSY_S = 30.0
"""How long a writer waits for another one."""


class SqlLedger:
    """Implements `domain.ports.Ledger` over SQLAlchemy. `where` is a file for SQLite, or a database URL."""

    def __init__(self, where: Path | str, blobs: Path) -> None:
        self.where = where
        self.blobs = Blobs(blobs)
        if isinstance(where, Path):
            _make_folder(where.parent)
        self.engine = _engine(where)
        with _plain_words(where), self.engine.begin() as connection:
            migrate(connection)

    def append(self, *records: Record) -> None:
        """Store all or none; a record that is there already is passed over."""
        rows = [
            {"id": record.id, "tag": record.tag, "body": record.body, "at": datetime.now(UTC).isoformat()}
            for record in records
        ]
        if not rows:
            return
        insert = "INSERT INTO records (id, tag, body, at) VALUES (:id, :tag, :body, :at) ON CONFLICT (id) DO NOTHING"
        with _plain_words(self.where), self.engine.begin() as connection:
            connection.execute(text(insert), rows)

    def get(self, record_id: str) -> Record:
        """The record with this id."""
        rows = self._read("SELECT id, tag, body FROM records WHERE id = :id", id=record_id)
        if not rows:
            raise missing(record_id)
        return decode(*rows[0])

    def find(self, prefix: str) -> Record:
        """The one record whose id, or hash, starts with `prefix`."""
        kind, digits = parse_prefix(prefix)
        like = f"{kind or '%'}:b2:{digits}%"
        rows = self._read("SELECT id, tag, body FROM records WHERE id LIKE :like ORDER BY seq LIMIT 6", like=like)
        if len(rows) != 1:
            raise not_one(prefix, [row[0] for row in rows])
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

    def _read(self, query: str, **values: str) -> list[Row[Any]]:
        with _plain_words(self.where), self.engine.connect() as connection:
            reading = connection.execution_options(reads_only=True)
            return list(reading.execute(text(query), values).all())


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot make the ledger's folder {folder}: {error.strerror}; set REFORWARD_HOME") from None


def _engine(where: Path | str) -> Engine:
    engine = create_engine(f"sqlite:///{where}" if isinstance(where, Path) else where)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: Any, _: object) -> None:
    """Waits instead of errors, write-ahead log, every commit on disk; transactions begin when we say so."""
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous=FULL")


def _write_ahead(connection: Any) -> None:
    """A new file's change to the write-ahead log fails at once while another process opens it, whatever the timeout: so
    that wait is ours."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes the lock at once, so that it waits for its turn and never fails halfway; a reader takes none."""
    reads_only = connection.get_execution_options().get("reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")


@contextmanager
def _plain_words(where: Path | str) -> Generator[None]:
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
