"""What every `Ledger` must do, over both implementations."""

from pathlib import Path

import pytest

from ledger.records import EVERY_KIND, FIRST, STOCK, candidate, run
from reforward.domain.contract import Contract
from reforward.domain.errors import BadInput
from reforward.domain.ports import Ledger
from reforward.domain.record import short
from reforward.domain.verdict import Finding
from reforward.ledger.codec import KINDS
from reforward.ledger.memory import MemoryLedger
from reforward.ledger.store import SqlLedger


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    if request.param == "memory":
        return MemoryLedger()
    return SqlLedger(tmp_path / "ledger.db", tmp_path / "blobs")


def test_every_kind_comes_back_equal(ledger: Ledger) -> None:
    assert {type(record) for record in EVERY_KIND} == set(KINDS.values())
    ledger.append(*EVERY_KIND)
    for record in EVERY_KIND:
        assert ledger.get(record.id) == record
        assert type(ledger.get(record.id)) is type(record)
    assert ledger.verify() == len(EVERY_KIND)


def test_order_of_arrival_is_kept_per_kind(ledger: Ledger) -> None:
    runs = [run(number) for number in (5, 3, 9, 1)]
    for record in runs:
        ledger.append(STOCK, record)
    assert list(ledger.records("run")) == runs
    assert list(ledger.records("verdict")) == []


def test_appending_again_changes_nothing(ledger: Ledger) -> None:
    ledger.append(run(1), run(2))
    ledger.append(run(2), run(1), run(3), run(3))
    ledger.append()
    assert list(ledger.records("run")) == [run(1), run(2), run(3)]
    assert ledger.verify() == 3


def test_all_or_none(ledger: Ledger) -> None:
    bad = Contract(numerics="bit-exact", resolution=1.0, error_ratio=float("nan"))
    with pytest.raises(ValueError, match="JSON compliant"):
        ledger.append(STOCK, bad)
    assert list(ledger.records("candidate")) == []


def test_whole_floats_keep_their_id(ledger: Ledger) -> None:
    typed_as_int = Contract(numerics="bit-exact", min_gain=1)
    ledger.append(typed_as_int)
    assert ledger.get(typed_as_int.id) == Contract(numerics="bit-exact", min_gain=1.0)
    assert Finding(check="c", value=1, limit=2, passed=True) == Finding(check="c", value=1.0, limit=2.0, passed=True)


def test_find_by_digits_kind_and_whole_id(ledger: Ledger) -> None:
    ledger.append(*EVERY_KIND)
    for record in EVERY_KIND:
        assert ledger.find(record.id) == record
        assert ledger.find(short(record.id)) == record
        assert ledger.find(short(record.id).upper()) == record
        assert ledger.find(f"{record.tag}:{short(record.id)}") == record


def test_find_says_why_it_cannot(ledger: Ledger) -> None:
    made = [candidate(str(number)) for number in range(400)]
    ledger.append(*made)
    with pytest.raises(BadInput, match="at least 4 hex digits"):
        ledger.find("abc")
    with pytest.raises(BadInput, match="at least 4 hex digits"):
        ledger.find("%%%%%%")
    with pytest.raises(BadInput, match="no record 'run:"):
        ledger.find(f"run:{short(made[0].id)}")
    digits = [record.id.rsplit(":", 1)[1] for record in made]
    twins = next((one[:4] for one in digits if sum(other.startswith(one[:4]) for other in digits) > 1), None)
    assert twins is not None, "400 hashes of which no two begin with the same 4 digits: choose more"
    with pytest.raises(BadInput, match="fits several records"):
        ledger.find(twins)


def test_what_is_not_there(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="has no record"):
        ledger.get(FIRST.id)
    with pytest.raises(BadInput, match="has no record"):
        ledger.find(FIRST.id)
