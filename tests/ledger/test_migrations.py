"""The schema grows in numbered steps, from the oldest ledger on."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from ledger.records import EVERY_KIND
from reforward.ledger import migrations
from reforward.ledger.migrations import MIGRATIONS, migrate, version
from reforward.ledger.store import SqlLedger

RELEASED = ("records", "append_only")
"""Names of released steps, in order. A step is appended here when it is written, and never edited."""


def test_released_steps_are_never_renamed_or_reordered() -> None:
    assert tuple(step.__name__ for step in MIGRATIONS) == RELEASED


def test_each_step_is_applied_once(tmp_path: Path) -> None:
    for _ in range(3):
        ledger = SqlLedger(tmp_path / "ledger.db", tmp_path / "blobs")
    with ledger.engine.connect() as connection:
        rows = connection.execute(text("SELECT number, name FROM migrations ORDER BY number")).all()
    assert [tuple(row) for row in rows] == list(enumerate(RELEASED, start=1))


@pytest.mark.parametrize("oldest", range(len(RELEASED)))
def test_every_old_schema_becomes_the_newest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, oldest: int) -> None:
    where, blobs = tmp_path / "ledger.db", tmp_path / "blobs"
    monkeypatch.setattr(migrations, "MIGRATIONS", MIGRATIONS[:oldest])
    with create_engine(f"sqlite:///{where}").begin() as connection:
        migrate(connection)
        assert version(connection) == oldest
    if oldest:
        SqlLedger(where, blobs).append(*EVERY_KIND)
    monkeypatch.undo()
    ledger = SqlLedger(where, blobs)
    with ledger.engine.connect() as connection:
        assert version(connection) == len(MIGRATIONS)
    assert ledger.verify() == (len(EVERY_KIND) if oldest else 0)


def test_a_step_that_fails_leaves_the_ledger_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, blobs = tmp_path / "ledger.db", tmp_path / "blobs"
    SqlLedger(where, blobs).append(*EVERY_KIND)

    def half(connection: migrations.Connection) -> None:
        connection.execute(text("CREATE TABLE half (x INTEGER)"))
        raise RuntimeError("power cut")

    monkeypatch.setattr(migrations, "MIGRATIONS", [*MIGRATIONS, half])
    with pytest.raises(RuntimeError, match="power cut"):
        SqlLedger(where, blobs)
    monkeypatch.undo()
    ledger = SqlLedger(where, blobs)
    assert "half" not in inspect(ledger.engine).get_table_names()
    assert ledger.verify() == len(EVERY_KIND)
