"""A few seconds of fuzzing; `fuzz/run.py` goes on for as long as one likes."""

import random

import pytest

from fuzz.mutate import bent, damaged
from fuzz.run import SHARES, fuzz
from fuzz.targets import Targets


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_but_what_is_promised_is_raised(seed: int) -> None:
    counts = fuzz(1500, seed)
    assert [crash for count in counts.values() for crash in count.crashes] == []
    assert all(count.taken + count.refused for count in counts.values())


def test_inputs_are_wrong_often_and_right_sometimes() -> None:
    counts = fuzz(1500, 3)
    for name in SHARES:
        assert counts[name].refused, f"{name} never met anything wrong"
    assert sum(bool(count.taken) for count in counts.values()) >= 7, "most targets also meet what is right"


def test_a_crash_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Targets, draw: random.Random) -> object:
        raise KeyError("planted")

    monkeypatch.setattr(Targets, "rows", broken)
    crashes = fuzz(100, 4)["rows"].crashes
    assert len(crashes) == SHARES["rows"]
    assert "planted" in crashes[0]


def test_the_generator_repeats_itself() -> None:
    one, two = (damaged(random.Random(7), bytes(range(99))) for _ in range(2))
    assert one == two
    assert bent(random.Random(7), {"a": [1, 2]}) == bent(random.Random(7), {"a": [1, 2]})
