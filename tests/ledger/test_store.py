"""SQLite in anger: writers that are killed, two writers at once, and files that are not what they should be."""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ledger.records import EVERY_KIND, STOCK, run
from reforward.domain.errors import LedgerCorrupt, Unavailable
from reforward.ledger import store
from reforward.ledger.migrations import MIGRATIONS
from reforward.ledger.store import SqlLedger

TESTS = Path(__file__).parents[1]
KILLS = 25
RECORDS_PER_TURN = 5


def _open(folder: Path) -> SqlLedger:
    return SqlLedger(folder / "ledger.db", folder / "blobs")


def _writer(folder: Path, start: int, count: int) -> "subprocess.Popen[str]":
    places = [str(folder / "ledger.db"), str(folder / "blobs"), str(start), str(count)]
    return subprocess.Popen(
        [sys.executable, "-m", "ledger.writer", *places], stdout=subprocess.PIPE, text=True, cwd=TESTS
    )


def test_no_acknowledged_turn_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged: list[str] = []
    for kill in range(KILLS):
        process = _writer(tmp_path, start=kill * 100_000, count=100_000)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n", "a ledger whose writer was killed must open again"
        time.sleep(chance.uniform(0, 0.08))
        process.send_signal(signal.SIGKILL)
        acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
        process.wait()
    ledger = _open(tmp_path)
    turns = {record.id for record in ledger.records("turn")}
    assert len(acknowledged) > KILLS
    assert set(acknowledged) <= turns
    stored = ledger.verify()
    assert stored == len(turns) * (RECORDS_PER_TURN), "a turn is stored whole or not at all"


def test_two_writers_at_once(tmp_path: Path) -> None:
    writers = [_writer(tmp_path, start=start, count=150) for start in (0, 1000)]
    outputs = [writer.communicate(timeout=60)[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    ledger = _open(tmp_path)
    assert {line for output in outputs for line in output if line != "open"} == {r.id for r in ledger.records("turn")}
    assert ledger.verify() == 300 * RECORDS_PER_TURN


def test_many_first_openings_at_once(tmp_path: Path) -> None:
    writers = [_writer(tmp_path, start=100 * number, count=1) for number in range(6)]
    assert [(writer.communicate(timeout=60), writer.returncode)[1] for writer in writers] == [0] * 6
    assert _open(tmp_path).verify() == 6 * RECORDS_PER_TURN


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    ledger = _open(tmp_path)
    ledger.append(STOCK)
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    assert ledger.get(STOCK.id) == STOCK
    assert time.monotonic() - begun < 1
    other.close()


def test_a_lock_that_is_never_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUSY_S", 0.2)
    ledger = _open(tmp_path)
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked by another process"):
        ledger.append(STOCK)
    other.execute("COMMIT")
    ledger.append(STOCK)
    assert ledger.verify() == 1


def test_the_database_itself_refuses_changes(tmp_path: Path) -> None:
    _open(tmp_path).append(*EVERY_KIND)
    raw = sqlite3.connect(tmp_path / "ledger.db")
    for statement in ("UPDATE records SET body = '{}'", "DELETE FROM records WHERE tag = 'verdict'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw.execute(statement)


def _forge(folder: Path, statement: str) -> None:
    """Change rows behind the ledger's back, triggers removed."""
    raw = sqlite3.connect(folder / "ledger.db")
    raw.execute("DROP TRIGGER records_no_update")
    raw.execute(statement)
    raw.commit()
    raw.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET body = replace(body, '\"mid\":0.5', '\"mid\":0.9')",
        "UPDATE records SET body = body || ' '",
        "UPDATE records SET body = substr(body, 1, 20)",
        "UPDATE records SET tag = 'turn' WHERE tag = 'run'",
        "UPDATE records SET id = replace(id, 'run:b2:', 'run:b2:0')",
    ],
)
def test_verify_finds_what_was_forged(tmp_path: Path, statement: str) -> None:
    _open(tmp_path).append(*EVERY_KIND)
    _forge(tmp_path, statement)
    with pytest.raises(LedgerCorrupt, match="does not match its content"):
        _open(tmp_path).verify()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(LedgerCorrupt, match="damaged: file is not a database; restore a copy"):
        _open(tmp_path)


def test_damaged_pages(tmp_path: Path) -> None:
    ledger = _open(tmp_path)
    ledger.append(*(run(number) for number in range(500)))
    ledger.engine.dispose()
    path = tmp_path / "ledger.db"
    damaged = bytearray(path.read_bytes())
    damaged[8192:-8192] = bytes(len(damaged) - 16384)
    path.write_bytes(damaged)
    with pytest.raises(LedgerCorrupt, match="damaged"):
        _open(tmp_path).verify()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable, match=r"cannot make the ledger's folder .*; set REFORWARD_HOME"):
        SqlLedger(tmp_path / "file" / "ledger.db", tmp_path / "blobs")
    with pytest.raises(Unavailable, match="unable to open database file; check the path"):
        SqlLedger(tmp_path, tmp_path / "blobs")


def test_a_full_disk(tmp_path: Path) -> None:
    ledger = _open(tmp_path)
    ledger.append(run(0))
    with ledger.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(Unavailable, match=r"database or disk is full; check .* free disk"):
        ledger.append(*(run(number) for number in range(1, 500)))
    assert list(ledger.records("run")) == [run(0)], "all or none"


def test_a_schema_of_the_future(tmp_path: Path) -> None:
    ledger = _open(tmp_path)
    ledger.append(STOCK)
    raw = sqlite3.connect(tmp_path / "ledger.db")
    raw.execute("INSERT INTO migrations VALUES (?, 'from the future')", (len(MIGRATIONS) + 1,))
    raw.commit()
    with pytest.raises(LedgerCorrupt, match=r"has schema \d+, this reforward knows \d+; upgrade reforward"):
        _open(tmp_path)


def test_a_new_ledger_may_be_opened_by_several_at_once(tmp_path: Path) -> None:
    where = tmp_path / "ledger.db"
    other = sqlite3.connect(where, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # a writer's lock, which would deadlock with the change of the log
    release = threading.Timer(0.5, lambda: other.execute("COMMIT"))
    release.start()
    assert SqlLedger(where, tmp_path / "blobs").verify() == 0
    release.join()
    other.close()
