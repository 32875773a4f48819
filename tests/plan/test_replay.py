"""The scheduler, against a plain one that goes token by token, and against what can be worked out by hand."""

import numpy as np
import pytest

from reforward.domain.errors import BadInput
from reforward.plan.affine import Affine
from reforward.plan.calibrate import Measured, calibrate, clock_of
from reforward.plan.engine import Limits
from reforward.plan.rank import Load
from reforward.plan.replay import Replayed, Schedule, replay
from reforward.plan.traffic import Traffic

STEPS = Affine(
    weights=0.01, experts=0.0, chance=0.0, sequence=1e-4, context=1e-7, crowded=0.0, mixed=0.002, token=5e-5, pair=1e-9
)


class Exact:
    """`STEPS` without tables."""

    def decode(self, batch: int, context: int, steps: int) -> np.ndarray:
        held = (context + batch * np.arange(steps)) / batch
        return np.asarray(STEPS.decode_s(float(batch), held), float)

    def mixed(self, load: Load) -> float:
        before = load.prefill_pairs / load.prefill_tokens - 1
        held = load.context / max(load.batch, 1)
        return float(STEPS.mixed_s(load.prefill_tokens, before, load.batch, held))


def _traffic(arrival: list[float], prompt: list[int], output: list[int]) -> Traffic:
    return Traffic(arrival=np.array(arrival), prompt=np.array(prompt), output=np.array(output), source="test")


def _busy(count: int = 60, seed: int = 0) -> Traffic:
    random = np.random.default_rng(seed)
    return Traffic(
        arrival=np.cumsum(random.exponential(0.03, count)),
        prompt=random.integers(5, 900, count),
        output=random.integers(1, 80, count),
        source="test",
    )


def _plain(traffic: Traffic, schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """vLLM's rules a token at a time, without blocks: first and last tokens. One rank, nothing overlapped."""
    limits, now = schedule.limits, 0.0
    done = np.zeros(len(traffic), dtype=int)
    made = np.zeros(len(traffic), dtype=int)
    first, last = np.full(len(traffic), np.nan), np.full(len(traffic), np.nan)
    waiting, running = list(range(len(traffic))), list[int]()
    while waiting or running:
        if not running and traffic.arrival[waiting[0]] > now:
            now = float(traffic.arrival[waiting[0]])
        budget, took = limits.max_num_batched_tokens, dict[int, int]()
        for index in running:
            took[index] = min(max(int(traffic.prompt[index]) - done[index], 1), budget)
            budget -= took[index]
        while waiting and budget and len(running) < limits.max_num_seqs and traffic.arrival[waiting[0]] <= now:
            index = waiting.pop(0)
            running.append(index)
            took[index] = min(int(traffic.prompt[index]), budget)
            budget -= took[index]
        load = Load()
        for index, tokens in took.items():
            if done[index] < traffic.prompt[index]:
                load.prefill_tokens += tokens
                load.prefill_pairs += tokens * (done[index] + (tokens + 1) / 2)
            else:
                load.batch += 1
                load.context += int(done[index]) + 1
        clock = Exact()
        now += clock.mixed(load) if load.prefill_tokens else float(clock.decode(load.batch, load.context, 1)[0])
        for index, tokens in took.items():
            done[index] += tokens
            if done[index] >= traffic.prompt[index]:
                made[index] += 1
                first[index] = now if made[index] == 1 else first[index]
                if made[index] == traffic.output[index]:
                    last[index] = now
                    running.remove(index)
    return first, last


@pytest.mark.parametrize(("seats", "tokens"), [(256, 2048), (4, 512), (16, 64), (1, 4096)])
def test_many_steps_at_once_are_the_same_as_one_by_one(seats: int, tokens: int) -> None:
    limits = Limits(max_num_seqs=seats, max_num_batched_tokens=tokens)
    traffic, schedule = _busy(), Schedule(limits=limits, blocks=100_000)
    run = replay(traffic, schedule, Exact())
    first, last = _plain(traffic, schedule)
    np.testing.assert_allclose(run.first, first, rtol=1e-9)
    np.testing.assert_allclose(run.last, last, rtol=1e-9)


def test_a_lone_request_takes_its_chunks_and_its_steps() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=512)
    run = replay(_traffic([3.0], [1000], [5]), Schedule(limits=limits, blocks=100), Exact())
    chunks = float(STEPS.prefill_s(512.0, 255.5)) + float(STEPS.prefill_s(488.0, 512 + 243.5))
    decode = sum(float(STEPS.decode_s(1.0, 1001.0 + step)) for step in range(4))
    assert run.ttft[0] == pytest.approx(chunks)
    assert run.last[0] == pytest.approx(3 + chunks + decode)


def test_the_tables_of_a_clock_are_near_what_they_are_made_of() -> None:
    traffic, limits = _busy(), Limits(max_num_seqs=32, max_num_batched_tokens=1024)
    schedule = Schedule(limits=limits, blocks=10_000)
    exact, tables = replay(traffic, schedule, Exact()), replay(traffic, schedule, clock_of(STEPS, schedule, traffic))
    np.testing.assert_allclose(tables.last, exact.last, rtol=0.01)


def test_who_finds_no_block_waits_and_loses_nothing() -> None:
    limits = Limits(max_num_seqs=64, max_num_batched_tokens=2048)
    traffic = _busy()
    tight = replay(traffic, Schedule(limits=limits, blocks=90), Exact())
    roomy = replay(traffic, Schedule(limits=limits, blocks=10_000), Exact())
    assert tight.pauses > 0
    assert roomy.pauses == 0
    assert np.isfinite(tight.last).all()
    assert tight.last.max() > roomy.last.max()
    assert _tokens(tight) == _tokens(roomy) == traffic.output.sum()


def _tokens(run: Replayed) -> float:
    """Every request's first token, and all others: in a step, or after a pause."""
    return len(run.first) + run.answered.sum() + len(run.long_gaps)


def test_ranks_step_together_and_share_the_requests() -> None:
    limits = Limits(max_num_seqs=64, max_num_batched_tokens=2048)
    traffic = _busy()
    two = replay(traffic, Schedule(limits=limits, blocks=1000, ranks=2), Exact())
    one = replay(traffic, Schedule(limits=limits, blocks=1000), Exact())
    assert 20 <= (two.rank == 0).sum() <= 40
    assert two.last.max() < one.last.max()


def test_an_overlapped_step_delays_who_comes_in_between() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=2048)
    traffic = _traffic([0.0, 0.25], [10, 10], [100, 100])
    plain = replay(traffic, Schedule(limits=limits, blocks=100), Exact())
    late = replay(traffic, Schedule(limits=limits, blocks=100, overlap=1), Exact())
    assert late.ttft[1] - plain.ttft[1] == pytest.approx(float(STEPS.decode_s(1.0, 30.0)), rel=0.01)


def test_a_request_that_can_never_fit_is_refused() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=2048)
    with pytest.raises(BadInput, match="1010 tokens does not fit into 160"):
        replay(_traffic([0.0], [1000], [10]), Schedule(limits=limits, blocks=10), Exact())


def test_factors_are_found_from_times_alone() -> None:
    truth = Affine(
        weights=0.013, experts=0, chance=0, sequence=1e-4, context=2e-7, crowded=0, mixed=0.002, token=8e-5, pair=1e-9
    )
    traffic, limits = _busy(120), Limits(max_num_seqs=32, max_num_batched_tokens=1024)
    schedule = Schedule(limits=limits, blocks=10_000)
    real = replay(traffic, schedule, clock_of(truth, schedule, traffic))
    measured = Measured(scheduled=np.full(120, np.nan), first=real.first, last=real.last)
    found = calibrate(STEPS, schedule, traffic, measured, 60)
    again = replay(traffic, schedule, clock_of(found, schedule, traffic))
    before = replay(traffic, schedule, clock_of(STEPS, schedule, traffic))
    assert _error(again, real) < 0.03 < 0.15 < _error(before, real)


def _error(run: Replayed, real: Replayed) -> float:
    """Of the median time between tokens, on requests that nothing was fitted to."""
    several = real.output[60:] > 1
    return abs(float(np.median(run.tpot[60:][several]) / np.median(real.tpot[60:][several])) - 1)
