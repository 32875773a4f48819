"""What can be asked of a ledger: history, one record, differences, the best, exports."""

from pathlib import Path

import pytest

from ledger.records import CONTRACT, FAILED, FIRST, SKIPPED, STOCK, SUBJECT, TARGET, WORKLOAD, candidate, run, turn
from reforward.app import read
from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import BadInput
from reforward.domain.record import short
from reforward.ledger.store import SqlLedger

SECOND = candidate("second")
WON = turn(run(), FIRST, STOCK, 0.5)
LOST = turn(run(), SECOND, FIRST, -0.2, tier="fast", ruling="reject")
MODULE = Candidate(host="module", entry="net.py:Net", files=(SourceFile(path="net.py", text="class Net: ...\n"),))


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlLedger:
    monkeypatch.setenv("REFORWARD_HOME", str(tmp_path / "home"))
    filled = read.open_ledger()
    filled.append(CONTRACT, WORKLOAD, STOCK, SUBJECT, TARGET, run(), *WON, *LOST, FAILED, SKIPPED, MODULE)
    return filled


def test_history_says_when_and_puts_skips_before_their_run():
    lines = read.history(10)
    assert [line.candidate for line in lines] == ["", FIRST.id, SECOND.id]
    assert {line.at[:10] for line in lines} == {"2026-01-02"}
    assert read.history(1) == lines[-1:]
    with pytest.raises(BadInput, match="at least 1"):
        read.history(0)


def test_a_run_is_described_with_its_setting_and_turns():
    facts = read.describe(run().id)
    assert [line.candidate for line in facts.lines] == ["", FIRST.id, SECOND.id]
    words = "\n".join(facts.setting)
    for part in ("subject tiny", "a cpu", "2 threads, huge pages", "2 requests distilled from a test", "2 verdicts"):
        assert part in words


def test_a_candidate_is_described_with_the_log_of_its_failure():
    facts = read.describe(STOCK.id)
    assert facts.failures == (FAILED,)
    assert read.describe(FAILED.id).failures == (FAILED,)
    assert read.describe(FIRST.id).failures == ()


def test_a_verdict_differs_from_what_it_was_compared_with():
    verdict, closing = LOST[3], LOST[4]
    for named in (verdict, closing):
        text = read.difference(named.id, None)
        assert "-first\n" in text
        assert "+second\n" in text
    assert "-stock\n" in read.difference(WON[2].id, None), "a measurement stands for its candidate"
    assert read.difference(short(SECOND.id), STOCK.id).count("+second") == 1


def test_candidates_of_two_hosts_are_not_compared():
    with pytest.raises(BadInput, match="host module"):
        read.difference(MODULE.id, STOCK.id)


@pytest.mark.parametrize("name", ["tiny", SUBJECT.id, short(SUBJECT.id)])
def test_the_best_is_found_by_name_and_id(name: str):
    assert [row.candidate for row in read.best(name)] == [FIRST.id]


def test_the_best_is_found_by_what_optimize_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert [row.candidate for row in read.best("./tiny")] == [FIRST.id], "a checkpoint folder"
    (tmp_path / "tiny/subject.py").write_text("")
    assert [row.candidate for row in read.best("tiny/subject.py")] == [FIRST.id]


def test_an_unknown_subject_is_not_sent_to_a_command_that_cannot_work():
    with pytest.raises(BadInput, match="it knows tiny") as caught:
        read.best("nonsense")
    assert "optimize" not in str(caught.value)
    with pytest.raises(BadInput, match="nothing was accepted yet"):
        read.best("smollm2")


def test_an_export_names_traffic_scale_tier_and_opponent(tmp_path: Path):
    read.export(FIRST.id, tmp_path / "out")
    text = (tmp_path / "out/forward.py").read_text()
    for part in (
        "traffic 2 requests distilled from a test, token counts scaled by 0.5: 4 prompt and 11 output tokens a pass",
        "tier slow: the whole model",
        f"against {STOCK.id}, the stock forward",
        "gain +50.0%, interval [+40.0%, +60.0%]",
    ):
        assert f"# {part}" in text
    assert "UNPROVEN" not in text


def test_an_unproven_export_says_so_and_what_was_ruled(tmp_path: Path):
    read.export(SECOND.id, tmp_path / "out")
    text = (tmp_path / "out/EVIDENCE.md").read_text()
    assert "UNPROVEN: no verdict at the slow tier accepts this candidate" in text
    assert "fast reject (slower): because" in text
    assert "UNPROVEN" in (tmp_path / "out/forward.py").read_text()
