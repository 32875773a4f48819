"""Draws are pure functions; log-probabilities are those of the row."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reforward.serve.sampling import Drawing, choose, logprobs, uniform

ROW = np.array([0.0, 2.0, 1.0, 2.0, -np.inf], np.float32)


def test_greedy_takes_the_first_maximum() -> None:
    assert choose(ROW, Drawing(temperature=0), 7) == 1


def test_the_same_seed_and_place_give_the_same_draw() -> None:
    row = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    how = Drawing(temperature=1, seed=3)
    once = [choose(row, how, index) for index in range(50)]
    assert once == [choose(row, how, index) for index in range(50)]
    assert len(set(once)) > 40
    assert once != [choose(row, Drawing(temperature=1, seed=4), index) for index in range(50)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    how = Drawing(temperature=temperature, seed=11)
    drawn = np.bincount([choose(ROW, how, index) for index in range(4000)], minlength=5) / 4000
    weights = np.exp(ROW.astype(float) / temperature)
    expected = weights / weights.sum()
    assert np.abs(drawn - expected).max() < 5 * math.sqrt(0.25 / 4000)
    assert drawn[4] == 0


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    how = Drawing(temperature=1, top_p=0.5, seed=1)
    assert {choose(ROW, how, index) for index in range(200)} == {1, 3}
    narrow = Drawing(temperature=1, top_p=1e-9, seed=1)
    assert {choose(ROW, narrow, index) for index in range(50)} == {1}


def test_top_p_beyond_the_sorted_part() -> None:
    flat = np.zeros(9000, np.float32)
    drawn = {choose(flat, Drawing(temperature=1, top_p=0.9, seed=5), index) for index in range(300)}
    assert max(drawn) > 1024
    assert max(drawn) <= 8100


@given(st.integers(min_value=-(2**63), max_value=2**64), st.integers(min_value=0, max_value=10**6))
def test_lots_lie_in_the_unit_interval(seed: int, index: int) -> None:
    assert 0 <= uniform(seed, index) < 1
    assert uniform(seed, index) == uniform(seed, index)


def test_a_tiny_temperature_is_greedy_without_overflow() -> None:
    assert choose(np.array([1e4, 2e4, -1e30], np.float32), Drawing(temperature=1e-300, seed=2), 0) == 1


def test_logprobs() -> None:
    chosen = logprobs(ROW, 2, 3)
    total = math.log(sum(math.exp(value) for value in (0, 2, 1, 2)))
    assert chosen.logprob == pytest.approx(1 - total)
    assert [token for token, _ in chosen.top] == [1, 3, 2]
    assert chosen.top[0][1] == pytest.approx(2 - total)
    assert logprobs(ROW, 0, 0).top == ()
