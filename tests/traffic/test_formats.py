"""BurstGPT, our own files, prefix blocks, and conversion between formats."""

import json
from pathlib import Path

import pytest

from reforward.domain.errors import BadInput
from reforward.traffic.blocks import PrefixHasher
from reforward.traffic.company import in_flight
from reforward.traffic.convert import write_trace
from reforward.traffic.native import Header
from reforward.traffic.packaged import packaged_trace
from reforward.traffic.trace import read_trace

SIX = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
EIGHT = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
MOONCAKE = [
    {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]},
    {"timestamp": 500, "input_length": 1030, "output_length": 6, "hash_ids": [7, 8, 10]},
]


def write(folder: Path, *lines: str) -> Path:
    path = folder / "trace"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_burstgpt_of_six_columns(tmp_path: Path) -> None:
    rows = ["5,ChatGPT,472,18,490,Conversation log", "45,ChatGPT,1087,0,1087,API log", "118,GPT-4,417,276,693,API log"]
    trace = read_trace(write(tmp_path, SIX, *rows))
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in trace.requests] == [
        (0.0, 472, 18),
        (113.0, 417, 276),
    ]
    assert (trace.failed, trace.bad_rows) == (1, ())


def test_burstgpt_of_eight_columns_tells_company(tmp_path: Path) -> None:
    rows = [
        "10.0,a-b,43,GPT-4,906,446,1352,Conversation log",
        "12.0,c,1.5,ChatGPT,36,29,65,API log",
        "60,d,2,ChatGPT,3,2,5,API log",
    ]
    assert [r.in_flight for r in read_trace(write(tmp_path, EIGHT, *rows)).requests] == [1, 2, 1]


@pytest.mark.parametrize(
    "row", ["x,ChatGPT,1,2,3,API log", "1,ChatGPT,1,2", "nan,ChatGPT,1,2,3,l", "1,ChatGPT,-1,2,3,l"]
)
def test_a_bad_burstgpt_row_is_counted(tmp_path: Path, row: str) -> None:
    trace = read_trace(write(tmp_path, SIX, *["5,ChatGPT,472,18,490,Conversation log"] * 120, row))
    assert [bad.line for bad in trace.bad_rows] == [122]


def test_mooncake_blocks_are_kept_and_tell_reuse(tmp_path: Path) -> None:
    first, second = read_trace(write(tmp_path, *map(json.dumps, MOONCAKE))).requests
    assert (first.blocks, first.reused_tokens, second.reused_tokens) == ((7, 8, 9), 0, 1024)


@pytest.mark.parametrize("form", ["reforward", "mooncake"])
def test_conversion_keeps_lengths_times_and_reuse(tmp_path: Path, form: str) -> None:
    source = read_trace(write(tmp_path, *map(json.dumps, MOONCAKE)))
    assert write_trace(source, tmp_path / "out", form) == 2  # type: ignore[arg-type]
    again = read_trace(tmp_path / "out")
    keep = [(r.arrival_s, r.prompt_tokens, r.output_tokens, r.reused_tokens) for r in source.requests]
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens, r.reused_tokens) for r in again.requests] == keep
    assert again.requests[0].blocks == (0, 1, 2), "hashes are renumbered"
    with pytest.raises(BadInput, match="exists already"):
        write_trace(source, tmp_path / "out", "reforward")


def test_smaller_blocks_are_regrouped_for_mooncake(tmp_path: Path) -> None:
    hasher = PrefixHasher(bytes(32), "token")
    long, other = tuple(range(1400)), (*range(1100), *range(300))
    header = Header(block_size=64, block_unit="token", salt_id="x").line()
    rows = [
        json.dumps({"timestamp": at, "input_length": 1400, "output_length": 1, "hash_ids": hasher(prompt)})
        for at, prompt in enumerate((long, other))
    ]
    ours = read_trace(write(tmp_path, header, *rows))
    assert ours.requests[1].reused_tokens == 17 * 64
    write_trace(ours, tmp_path / "out", "mooncake")
    first, second = read_trace(tmp_path / "out").requests
    assert [len(first.blocks), len(second.blocks)] == [3, 3], (
        "as many as Mooncake's own: one for each started 512 tokens"
    )
    assert second.reused_tokens == 1024


def test_blocks_of_text_tell_reuse_by_share(tmp_path: Path) -> None:
    hasher = PrefixHasher(bytes(32), "byte")
    texts = ("a" * 1024, "a" * 512 + "b" * 512)
    header = Header(block_size=256, block_unit="byte").line()
    rows = [
        json.dumps({"timestamp": at, "input_length": 200, "output_length": 1, "hash_ids": hasher(text)})
        for at, text in enumerate(texts)
    ]
    assert [r.reused_tokens for r in read_trace(write(tmp_path, header, *rows)).requests] == [0, 100]


def test_hashes_chain_are_keyed_and_fit_a_double() -> None:
    one, other = PrefixHasher(bytes(32), "token"), PrefixHasher(b"k" * 32, "token")
    prompt = tuple(range(130))
    assert len(one(prompt)) == 3
    assert one(prompt)[:2] == one(prompt[:128])
    assert one((0, *prompt))[2] != one(prompt)[2]
    assert set(one(prompt)).isdisjoint(other(prompt))
    assert all(0 <= block < 2**53 for block in one(prompt))
    assert one("text") == ()


def test_company_counts_requests_that_have_not_ended() -> None:
    assert in_flight([0, 1, 2, 10], [5, 0.5, 100, 1]) == [1, 2, 2, 2]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"version": 2}, "is version 2"),
        ({"time_unit": "s"}, "time_unit ms"),
        ({"block_size": -1}, "block_size -1"),
        ({"begun_at": "yesterday"}, "no time"),
        ({"salt_id": 7}, "are texts"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path: Path, header: dict[str, object], reason: str) -> None:
    told = json.dumps({**json.loads(Header().line()), **header})
    with pytest.raises(BadInput, match=reason):
        read_trace(write(tmp_path, told, '{"timestamp": 1, "input_length": 3, "output_length": 2}'))


@pytest.mark.parametrize(
    "more", [{"status": "ok"}, {"e2e_ms": -1}, {"sampling": {"n": "two"}}, {"in_flight": 1.5}, {"hash_ids": ["a"]}]
)
def test_a_bad_row_of_ours_is_counted(tmp_path: Path, more: dict[str, object]) -> None:
    good = {"timestamp": 1, "input_length": 3, "output_length": 2, "a_key_of_the_future": [1]}
    trace = read_trace(write(tmp_path, Header().line(), *[json.dumps(good)] * 120, json.dumps({**good, **more})))
    assert [bad.line for bad in trace.bad_rows] == [122]


def test_the_packaged_trace_survives_conversion(tmp_path: Path) -> None:
    trace = packaged_trace()
    write_trace(trace, tmp_path / "out", "reforward")
    assert read_trace(tmp_path / "out").requests == trace.requests
