"""What a capture leaves on disk: shapes by default, contents by opt-in; crashes, full disks and clocks that jump."""

import os
import time
from pathlib import Path

import pytest

from reforward.domain.errors import BadInput
from reforward.traffic.content import ContentStore, contents
from reforward.traffic.keys import secret
from reforward.traffic.segments import purge
from reforward.traffic.shapes import ShapeStore
from reforward.traffic.tap import Tap
from reforward.traffic.trace import read_trace
from traffic.house import SAID, call, files_of_at_most

KEY = bytes(range(32))
SECRET = "the vault opens at nine, my card is 4111-1111"


def shapes(folder: Path, *, unit: str = "token", key: bytes = KEY, size: int = 1 << 20) -> ShapeStore:
    return ShapeStore(folder, key, unit=unit, source="a test", file_bytes=size, folder_bytes=4 * size)


def test_rows_come_back_with_reuse_company_and_sampling(tmp_path: Path) -> None:
    store, now = shapes(tmp_path), time.monotonic()
    long = tuple(range(200))
    store.take(
        [call(now + 1.0, long), call(now + 1.25, long[:130] + (9,) * 20), call(now + 2.0, (5,), output=0, status=500)]
    )
    store.close()
    trace = read_trace(tmp_path)
    assert (trace.failed, trace.torn, trace.header.block_size, trace.header.block_unit) == (1, 0, 64, "token")
    first, second = trace.requests
    assert (first.prompt_tokens, first.reused_tokens, first.in_flight, first.sampling) == (200, 0, 1, SAID)
    assert (second.arrival_s, second.reused_tokens, second.in_flight) == (0.25, 128, 2)
    assert len(first.blocks) == 4, "a started block counts"


def test_nothing_that_was_said_is_in_the_store(tmp_path: Path) -> None:
    store = shapes(tmp_path / "store", unit="byte")
    store.take([call(time.monotonic(), SECRET)])
    store.close()
    (file,) = (tmp_path / "store").iterdir()
    assert not any(word in file.read_text() for word in ("vault", "4111", "card"))
    assert file.stat().st_mode & 0o077 == 0, "nobody else may read it"


def test_hashes_depend_on_the_key_and_other_keys_are_not_compared(tmp_path: Path) -> None:
    now = time.monotonic()
    for key in (KEY, bytes(32)):
        store = shapes(tmp_path, key=key)
        store.take([call(now), call(now + 1)])
        store.close()
    one, other = (read_trace(file) for file in sorted(tmp_path.iterdir()))
    assert one.requests[0].blocks != other.requests[0].blocks
    assert one.header.salt_id != other.header.salt_id
    assert one.requests[1].reused_tokens == 3
    both = read_trace(tmp_path)
    assert len(both.requests) == 4
    assert not any(request.blocks or request.reused_tokens for request in both.requests)


def test_files_rotate_and_the_oldest_make_room(tmp_path: Path) -> None:
    store, now = shapes(tmp_path, size=2000), time.monotonic()
    for number in range(100):
        store.take([call(now + number)])
    store.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) > 2
    assert sum(file.stat().st_size for file in files) <= 8000
    assert store.segments.deleted > 0
    assert read_trace(tmp_path).requests[-1].arrival_s > 0


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_torn_last_line_is_left_out_and_said(tmp_path: Path, cut: int) -> None:
    store, now = shapes(tmp_path), time.monotonic()
    store.take([call(now + number) for number in range(3)])
    store.close()
    (file,) = tmp_path.iterdir()
    os.truncate(file, file.stat().st_size - cut)
    trace = read_trace(file)
    whole = cut == 1
    assert (len(trace.requests), trace.torn, trace.bad_rows) == ((3, 0, ()) if whole else (2, 1, ()))


def test_a_full_disk_costs_rows_that_are_counted_and_no_half_line(tmp_path: Path) -> None:
    tap, now = Tap([shapes(tmp_path)]), time.monotonic()
    with files_of_at_most(1500):
        for number in range(50):
            tap.observe(call(now + number))
            time.sleep(0.001)
        while tap.counts().kept + tap.counts().dropped_disk < 50:
            time.sleep(0.001)
    full = tap.counts()
    tap.observe(call(now + 99))
    counts = tap.close()
    assert 0 < full.dropped_disk < 50
    assert counts.kept == full.kept + 1, "there is space again, and the same file goes on"
    trace = read_trace(tmp_path)
    assert (len(trace.requests), trace.torn, trace.bad_rows) == (counts.kept, 0, ())


def test_a_folder_that_cannot_be_made_costs_rows_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    tap = Tap([shapes(tmp_path / "file" / "store")])
    tap.observe(call(time.monotonic()))
    assert tap.close().dropped_disk == 1


def test_a_wall_clock_that_jumps_does_not_disorder_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = shapes(tmp_path), time.monotonic()
    store.take([call(now + 1)])
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 86_400)
    store.take([call(now + 2)])
    store.close()
    trace = read_trace(tmp_path)
    assert [request.arrival_s for request in trace.requests] == [0.0, 1.0]
    assert trace.unsorted == 0


def test_a_file_that_somebody_deleted_is_not_written_on(tmp_path: Path) -> None:
    store, now = shapes(tmp_path), time.monotonic()
    store.take([call(now)])
    next(tmp_path.iterdir()).unlink()
    store.take([call(now + 1)])
    store.close()
    assert len(read_trace(tmp_path).requests) == 1


def test_contents_are_sampled_encrypted_and_expire(tmp_path: Path) -> None:
    folder = tmp_path / "content"
    store = ContentStore(folder, KEY, share=0.5, keep_s=3600, seed=1)
    store.take([call(0.0, SECRET)] * 200)
    store.close()
    (file,) = folder.iterdir()
    assert b"vault" not in file.read_bytes()
    kept = list(contents(folder, KEY, 3600))
    assert 70 < len(kept) < 130
    assert kept[0]["prompt"] == SECRET
    assert len((folder / "reads.log").read_text().splitlines()) == 1
    assert next(contents(folder, bytes(32), 3600)).keys() == {"unreadable"}
    assert list(contents(folder, KEY, -1)) == [], "expired lines are not told, even if the file is still there"
    os.utime(file, (time.time() - 4000,) * 2)
    ContentStore(folder, KEY, share=0.5, keep_s=3600).close()
    assert not file.exists(), "a store that opens deletes what has expired"


def test_contents_expire_while_the_store_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = ContentStore(tmp_path, KEY, share=1.0, keep_s=100), time.monotonic()
    store.take([call(0.0)])
    (first,) = tmp_path.iterdir()
    os.utime(first, (time.time() - 101,) * 2)
    monkeypatch.setattr(time, "monotonic", lambda: now + 101)
    store.take([])
    assert not first.exists(), "no call has to come for that"
    store.take([call(0.0)])
    store.close()
    assert len(list(tmp_path.iterdir())) == 1


def test_bad_shares_and_times_are_refused(tmp_path: Path) -> None:
    for share, keep in ((0, 1), (1.5, 1), (0.5, 0)):
        with pytest.raises(BadInput):
            ContentStore(tmp_path, KEY, share=share, keep_s=keep)


def test_purge_takes_the_old_and_leaves_the_rest(tmp_path: Path) -> None:
    for name, age in (("a.jsonl", 100), ("b.jsonl", 1), ("c.txt", 100)):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    assert purge(tmp_path, ".jsonl", 50) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.jsonl", "c.txt"]
    assert purge(tmp_path / "none", ".jsonl", 50) == 0


def test_a_key_is_made_once_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "shape.key"
    assert secret(path) == secret(path)
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(b"short")
    with pytest.raises(BadInput, match="5 bytes"):
        secret(path)
