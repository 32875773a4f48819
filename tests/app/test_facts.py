"""Budgets, medians with their intervals, and diffs."""

import math
import random

import pytest

from reforward.app.budget import Budget, InTime, parse_seconds
from reforward.app.diffs import stat, unified
from reforward.app.facts import median, tier_agreement
from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import BadInput
from reforward.domain.verdict import Interval, Verdict


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2m ", 120)])
def test_durations(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "10 minutes", "-3m", "nan"])
def test_bad_durations_say_how_to_write_one(text):
    with pytest.raises(BadInput, match="such as 10m"):
        parse_seconds(text)


def test_a_budget_needs_a_limit():
    with pytest.raises(BadInput, match="--budget"):
        Budget()
    with pytest.raises(BadInput, match="positive"):
        Budget(candidates=-1)


def test_screening_leaves_time_to_confirm():
    budget = Budget(seconds=100)
    assert not budget.screening_over(50, 10)
    assert budget.screening_over(70, 10)
    assert not budget.over(70)
    assert budget.over(100)
    assert Budget(candidates=3).screening_over(0, 3)


def test_a_session_ends_when_the_time_of_the_run_is_up():
    class Never:
        def observe(self, samples):
            return "continue"

    assert InTime(Never(), 1000).observe(()) == "continue"
    assert InTime(Never(), 0).observe(()) == "stop"
    assert Budget(seconds=100).left(30) == 70
    assert Budget(candidates=1).left(30) == math.inf


def test_the_interval_of_a_median_covers_it():
    draw = random.Random(1)
    hits = 0
    for _ in range(1000):
        found = median([draw.gauss(5, 2) for _ in range(15)])
        assert found.low <= found.value <= found.high
        hits += found.low <= 5 <= found.high
    assert hits >= 940, "95 % coverage, less three standard errors"


def test_few_values_give_their_whole_range():
    found = median([3.0, 1.0, 2.0])
    assert (found.low, found.value, found.high, found.count) == (1, 2, 3, 3)


def test_diffs_show_changed_new_and_removed_files():
    old = Candidate(host="lm", entry="a.py:A", files=(SourceFile(path="a.py", text="one\ntwo\n"),))
    new = old.with_files({"a.py": "one\n2\n", "b.cpp": "int x;\n"})
    text = unified(old, new)
    assert "-two" in text
    assert "+2" in text
    assert "--- /dev/null\n+++ b/b.cpp" in text
    assert stat(old, new) == (("a.py", 1, 1), ("b.cpp", 1, 0))
    assert unified(old, old) == ""


def ruled(candidate: str, tier: str, gain: float) -> Verdict:
    return Verdict(
        measurement="m", contract="c", candidate=candidate, tier=tier, ruling="accept", reason="faster", detail="",
        gain=Interval(low=gain, mid=gain, high=gain),
    )  # fmt: skip


def test_tiers_agree_when_they_rank_alike():
    fast = [ruled(name, "fast", gain) for name, gain in (("a", 0.1), ("b", 0.5), ("c", 0.3), ("d", 9.0))]
    assert tier_agreement(
        [*fast, ruled("a", "slow", 1), ruled("b", "slow", 3), ruled("c", "slow", 2)]
    ) == pytest.approx(1)
    assert tier_agreement(
        [*fast, ruled("a", "slow", 3), ruled("b", "slow", 1), ruled("c", "slow", 2)]
    ) == pytest.approx(-1)
    assert tier_agreement([*fast, ruled("a", "slow", 3), ruled("b", "slow", 1)]) is None
