"""Files named by their content."""

from pathlib import Path

import pytest

from reforward.domain.errors import BadInput, LedgerCorrupt
from reforward.ledger.blobs import Blobs


def test_what_is_put_can_be_got(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    data = [b"", b"one", bytes(range(256)) * 1000]
    keys = [blobs.put(each) for each in data]
    assert [blobs.get(key) for key in keys] == data
    assert len(set(keys)) == 3
    assert blobs.verify() == 3


def test_putting_again_keeps_one_file(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    assert blobs.put(b"same") == blobs.put(b"same")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [blobs.put(b"same")[2:]]


def test_a_half_written_file_is_no_blob(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    key = blobs.put(b"whole")
    (tmp_path / key[:2] / ".half").write_bytes(b"who")
    assert blobs.verify() == 1


def test_damage_is_found(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    key = blobs.put(b"whole")
    (tmp_path / key[:2] / key[2:]).write_bytes(b"whale")
    with pytest.raises(LedgerCorrupt, match=f"blob {key} has other content"):
        blobs.verify()


def test_an_unknown_key(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="blob 'abcd' is not in"):
        Blobs(tmp_path).get("abcd")
