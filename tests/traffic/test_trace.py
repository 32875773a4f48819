"""Reading traces: formats, bad rows, refusals."""

import json
from pathlib import Path

import pytest

from reforward.domain.errors import BadInput
from reforward.traffic.packaged import packaged_trace
from reforward.traffic.summary import summarise
from reforward.traffic.trace import read_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def write(folder: Path, *lines: str) -> Path:
    path = folder / "trace"
    path.write_text("\n".join(lines) + "\n")
    return path


def azure_rows(count: int) -> list[str]:
    return [f"2023-11-16 18:15:{index % 60:02d}.6805900,{100 + index},{10 + index}" for index in range(count)]


def test_azure_rows_become_requests_in_arrival_order(tmp_path: Path) -> None:
    rows = ["2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109", "2023-11-16 18:15:45.0,1,2"]
    trace = read_trace(write(tmp_path, HEADER, *rows))
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in trace.requests] == [
        (0.0, 1, 2),
        (1.68059, 374, 44),
        (5.995169, 396, 109),
    ]


def test_mooncake_rows_become_requests(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]},
        {"timestamp": 6001, "input_length": 10, "output_length": 5, "hash_ids": [0]},
    ]
    trace = read_trace(write(tmp_path, *map(json.dumps, rows)))
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in trace.requests] == [
        (0.0, 6758, 500),
        (3.001, 10, 5),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2023-11-16 18:15:46.68,374", "2 fields"),
        ("2023-11-16 18:15:46.68,many,44", "'many' is not a whole number"),
        ("yesterday,374,44", "'yesterday' is not a time"),
        ("2023-11-16 18:15:46.68,374,0", "at least one prompt and one output"),
        ("2023-11-16 18:15:46.68,-3,7", "'-3' is not a whole number"),
        ("2023-11-16 18:15:46.68,1_0,7", "'1_0' is not a whole number"),
        ("2023-11-16 18:15:46.68,\u0663,7", "is not a whole number"),
        (f"2023-11-16 18:15:46.68,{'9' * 400},7", "more than 1,073,741,824 tokens"),
        (f"2023-11-16 18:15:46.68,{'9' * 5000},7", "is not a whole number"),
        ("2023-11-16 18:15:46.1e300,3,7", "is not a time"),
        ("2023-11-16 18:15:46.inf,3,7", "is not a time"),
        ("2023-11-16 18:15:46+05:00,3,7", "is not a time"),
    ],
)
def test_a_bad_azure_row_is_counted_with_its_line_and_reason(tmp_path: Path, row: str, reason: str) -> None:
    rows = azure_rows(150)
    trace = read_trace(write(tmp_path, HEADER, *rows[:20], row, *rows[20:]))
    assert len(trace.requests) == 150
    assert [bad.line for bad in trace.bad_rows] == [22]
    assert reason in trace.bad_rows[0].reason


@pytest.mark.parametrize(
    "row",
    ["{", "[" * 100_000, "[1]", '{"timestamp": 1}', '{"timestamp": 1, "input_length": 1.5, "output_length": 2}',
     '{"timestamp": 1, "input_length": true, "output_length": 2}',
     '{"timestamp": NaN, "input_length": 3, "output_length": 2}',
     '{"timestamp": 1, "input_length": 4503599627370496, "output_length": 2}',
     '{"timestamp": 4503599627370496, "input_length": 3, "output_length": 2}',
     '{"timestamp": 1, "input_length": 3, "output_length": 2, "hash_ids": 7}'],
)  # fmt: skip
def test_a_bad_mooncake_row_is_counted(tmp_path: Path, row: str) -> None:
    good = ['{"timestamp": 1, "input_length": 3, "output_length": 2, "hash_ids": [1]}'] * 120
    trace = read_trace(write(tmp_path, *good, row))
    assert [bad.line for bad in trace.bad_rows] == [121]


def test_more_than_one_per_cent_bad_is_refused(tmp_path: Path) -> None:
    rows = azure_rows(100)
    with pytest.raises(BadInput, match=r"2 of 102 rows .* line 2: .* line 3"):
        read_trace(write(tmp_path, HEADER, "x", "y", *rows))


@pytest.mark.parametrize("text", ["", "\n\n", "a,b,c\n1,2,3\n", '{"prompt": "hi"}\n'])
def test_empty_and_unknown_files_name_the_known_formats(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"Azure CSV.*Mooncake JSONL"):
        read_trace(path)


def test_missing_binary_and_header_only_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read") as caught:
        read_trace(tmp_path / "none")
    assert str(caught.value).count(str(tmp_path)) == 1, "the path is said once"
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(BadInput, match="it is binary, not text; known formats"):
        read_trace(tmp_path / "binary")
    with pytest.raises(BadInput, match="no rows"):
        read_trace(write(tmp_path, HEADER))


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(BadInput, match="it is no file"):
            read_trace(path)


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    rows = azure_rows(150)
    trace = read_trace(write(tmp_path, HEADER, *rows[:20], "\x0c,\u2028,\x1e", *rows[20:]))
    assert [bad.line for bad in trace.bad_rows] == [22]


def test_the_packaged_slice_reads_whole() -> None:
    trace = packaged_trace()
    assert len(trace.requests) == 2000
    assert not trace.bad_rows
    assert trace.requests[0].arrival_s == 0.0


def test_summary_of_a_known_trace(tmp_path: Path) -> None:
    rows = [f"2023-11-16 18:{minute:02d}:00,{100},{10}" for minute in range(11)]
    facts = summarise(read_trace(write(tmp_path, HEADER, *rows)))
    assert (facts.requests, facts.duration_s, facts.gap_cv, facts.peak_minute) == (11, 600.0, 0.0, 1)
    assert facts.rate_per_s == pytest.approx(1 / 60)
    assert facts.prompt.mean == 100
    assert facts.to_dict()["output"]["max"] == 10


def test_summary_of_one_request_leaves_rates_unknown(tmp_path: Path) -> None:
    facts = summarise(read_trace(write(tmp_path, HEADER, azure_rows(1)[0])))
    assert (facts.rate_per_s, facts.gap_cv, facts.dispersion_minute) == (None, None, None)


def test_two_gaps_are_too_few_to_call_traffic_bursty(tmp_path: Path) -> None:
    facts = summarise(read_trace(write(tmp_path, HEADER, *azure_rows(3))))
    assert (facts.requests, facts.gap_cv) == (3, None)


def test_rows_out_of_order_are_sorted_and_counted(tmp_path: Path) -> None:
    rows = azure_rows(4)
    trace = read_trace(write(tmp_path, HEADER, rows[0], rows[3], rows[1], rows[2]))
    assert [request.arrival_s for request in trace.requests] == sorted(r.arrival_s for r in trace.requests)
    assert (trace.unsorted, summarise(trace).unsorted) == (2, 2)
    assert read_trace(write(tmp_path, HEADER, *rows)).unsorted == 0


def test_the_packaged_slice_is_bursty() -> None:
    facts = summarise(packaged_trace())
    assert facts.gap_cv is not None
    assert 1.0 < facts.gap_cv < 1.3
    assert facts.prompt.p50 == 1032


def test_one_damaged_clock_costs_no_memory(tmp_path: Path) -> None:
    rows = [*azure_rows(120), "9999-12-31 23:59:59,5,1"]
    facts = summarise(read_trace(write(tmp_path, HEADER, *rows)))
    assert facts.duration_s > 2e11
    assert facts.peak_minute == 120
    assert facts.dispersion_minute == pytest.approx(120, rel=1e-3)


def test_dispersion_counts_minutes_without_arrivals(tmp_path: Path) -> None:
    rows = [f"2023-11-16 18:{minute:02d}:00,100,10" for minute in (0, 0, 0, 2, 4)]
    facts = summarise(read_trace(write(tmp_path, HEADER, *rows)))
    assert facts.dispersion_minute == pytest.approx(1.5)
