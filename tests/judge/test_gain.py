"""Intervals, budgets and looks; false accepts and power over many simulated sessions."""

import math

import numpy as np
import pytest

from reforward.domain.calibration import Noise
from reforward.domain.contract import Contract
from reforward.domain.measurement import ArmName, Sample
from reforward.domain.subject import Tier
from reforward.judge.gain import budget, ends, estimate, level, looks, noise, pairs, visible
from reforward.judge.stopping import StandardStopping, State, outlook
from reforward.judge.student import quantile, upper_tail

CONTRACT = Contract(numerics="reassociated", min_gain=0.01)
ORDERS: tuple[tuple[ArmName, ...], ...] = (
    ("incumbent", "candidate", "candidate", "incumbent"),
    ("candidate", "incumbent", "incumbent", "candidate"),
)


@pytest.mark.parametrize(
    ("tail", "df", "expected"),
    [
        (0.05, 1, 6.3138),
        (0.05, 2, 2.9200),
        (0.01, 4, 3.7469),
        (0.001, 5, 5.8934),
        (0.025, 15, 2.1314),
        (0.0005, 2, 31.599),
    ],
)
def test_quantiles_of_students_t_match_the_tables(tail: float, df: int, expected: float) -> None:
    assert quantile(tail, df) == pytest.approx(expected, abs=1e-3)
    assert upper_tail(quantile(tail, df), df) == pytest.approx(tail, rel=1e-6)


def samples_of(effects: list[list[float]]) -> list[Sample]:
    """ABBA passes per launch: incumbent 1 s, candidate exp(-effect) s."""
    made: list[Sample] = []
    for launch, (first, second) in enumerate(effects):
        for arm, effect in (("incumbent", 0.0), ("candidate", first), ("candidate", second), ("incumbent", 0.0)):
            made.append(Sample(arm=arm, launch=launch, order=len(made), seconds=math.exp(-effect)))
    return made


def simulate(
    gain: float, tier: Tier, draw: np.random.Generator, launch: float, each: float, spikes: float = 0.0,
    contract: Contract = CONTRACT, prior: Noise | None = None,
) -> tuple[State, list[Sample]]:  # fmt: skip
    """One session with log-normal noise per launch and per pass; spikes add half to a pass."""
    rule, made = StandardStopping(contract, tier, 0, prior), list[Sample]()
    while True:
        of: dict[ArmName, float] = {"incumbent": launch * draw.standard_normal() / math.sqrt(2)}
        of["candidate"] = launch * draw.standard_normal() / math.sqrt(2) - math.log1p(gain)
        number = len(made) // 4
        for arm in ORDERS[number % 2]:
            seconds = math.exp(of[arm] + each * draw.standard_normal()) * (1.5 if draw.random() < spikes else 1)
            made.append(Sample(arm=arm, launch=number, order=len(made), seconds=seconds))
        if rule.observe(made) == "stop":
            return outlook(made, contract, tier, 0, prior).state, made


def test_the_pair_of_launches_is_the_unit() -> None:
    samples = samples_of([[0.10, 0.12], [0.08, 0.06]])
    assert [round(pair.effect, 6) for pair in pairs(samples)] == [0.11, 0.07]
    assert estimate(samples).mean == pytest.approx(0.09)
    assert estimate(samples).error == pytest.approx(0.02)


def test_pairs_that_agree_by_accident_do_not_shrink_the_error() -> None:
    calm = estimate(samples_of([[0.1, 0.1], [0.1, 0.1]]))
    nervous = estimate(samples_of([[0.0, 0.2], [0.2, 0.0]]))
    assert calm.error < 1e-6
    assert nervous.error > 0.05


def test_an_incomplete_pair_waits() -> None:
    samples = samples_of([[0.1, 0.1], [0.1, 0.1]])[:7]
    assert len(pairs(samples)) == 1
    assert StandardStopping(CONTRACT, "fast", 0).observe(samples) == "continue"


@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_the_levels_of_all_looks_sum_to_the_budget(tier: Tier) -> None:
    schedule = looks(CONTRACT, tier)
    levels = [level(CONTRACT, tier, 2, count) for count in schedule]
    assert sum(one for one in levels if one is not None) == pytest.approx(budget(CONTRACT, tier, 2))
    assert schedule[-1] == CONTRACT.pairs_at(tier)
    assert level(CONTRACT, tier, 2, schedule[-1] + 1) is None


def test_the_budgets_of_all_confirmations_sum_to_alpha() -> None:
    spent = sum(budget(CONTRACT, "slow", before) for before in range(5000))
    assert 0.99 * CONTRACT.alpha < spent <= CONTRACT.alpha


@pytest.mark.parametrize("tier", ["fast", "slow"])
@pytest.mark.parametrize(("launch", "each", "spikes"), [(0.01, 0.01, 0.0), (0.03, 0.03, 0.05), (0.05, 0.03, 0.0)])
def test_identical_arms_are_almost_never_accepted(tier: Tier, launch: float, each: float, spikes: float) -> None:
    draw = np.random.default_rng(1)
    states = [simulate(0.0, tier, draw, launch, each, spikes)[0] for _ in range(500)]
    assert states.count("faster") <= 500 * 0.02


@pytest.mark.parametrize(("gain", "least"), [(0.10, 0.8), (0.08, 0.6), (0.20, 0.95)])
def test_power_of_the_fast_tier_on_a_noisy_machine(gain: float, least: float) -> None:
    draw = np.random.default_rng(2)
    states = [simulate(gain, "fast", draw, 0.02, 0.02)[0] for _ in range(150)]
    assert states.count("faster") >= least * 150


@pytest.mark.parametrize(("gain", "least"), [(0.05, 0.9), (0.10, 0.98)])
def test_power_of_the_slow_tier_on_a_noisy_machine(gain: float, least: float) -> None:
    draw = np.random.default_rng(3)
    states = [simulate(gain, "slow", draw, 0.02, 0.02)[0] for _ in range(150)]
    assert states.count("faster") >= least * 150


@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_clear_losers_stop_after_few_pairs(tier: Tier) -> None:
    draw = np.random.default_rng(4)
    found = [simulate(-0.15, tier, draw, 0.01, 0.01) for _ in range(50)]
    assert {state for state, _ in found} == {"slower"}
    assert np.mean([len(samples) / 4 for _, samples in found]) < 2.5


def test_one_pair_decides_nothing_unless_the_noise_is_known() -> None:
    hopeless = samples_of([[-0.5, -0.4]])
    assert StandardStopping(CONTRACT, "slow", 0, PRIOR).observe(hopeless) == "continue"
    assert StandardStopping(CONTRACT, "fast", 0).observe(hopeless) == "continue"
    assert StandardStopping(CONTRACT, "fast", 0, PRIOR).observe(hopeless) == "stop"
    assert outlook(hopeless, CONTRACT, "fast", 0, PRIOR).state == "slower"
    assert outlook(samples_of([[0.5, 0.5]]), CONTRACT, "fast", 0, PRIOR).state == "open"


@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_a_slower_candidate_is_never_called_faster(tier: Tier) -> None:
    draw = np.random.default_rng(5)
    assert all(simulate(-0.03, tier, draw, 0.02, 0.02)[0] != "faster" for _ in range(200))


def test_the_decision_rebuilt_from_samples_is_the_decision_taken() -> None:
    draw = np.random.default_rng(6)
    for _ in range(40):
        state, samples = simulate(0.06, "slow", draw, 0.02, 0.02)
        assert outlook(list(reversed(samples)), CONTRACT, "slow", 0).state == state
        rule = StandardStopping(CONTRACT, "slow", 0)
        asked = [rule.observe(samples[: 4 * count]) for count in range(1, len(samples) // 4 + 1)]
        assert asked == ["continue"] * (len(asked) - 1) + ["stop"]


def test_a_one_per_cent_goal_is_undecided_rather_than_guessed() -> None:
    draw = np.random.default_rng(7)
    states = [simulate(0.012, "slow", draw, 0.03, 0.03)[0] for _ in range(50)]
    assert states.count("faster") <= 3
    assert "open" in states


PRIOR = Noise(deviation=math.hypot(0.03, 0.03 / math.sqrt(2)), freedom=7)
"""What a calibration finds, on average, where launches and passes differ by 3 % each."""


def calibration(draw: np.random.Generator, launch: float, each: float, spikes: float) -> Noise:
    """What eight pairs of identical code tell of the noise."""
    effects = launch * draw.standard_normal(8)
    passes = each * draw.standard_normal((8, 4)) + math.log(1.5) * (draw.random((8, 4)) < spikes)
    blocks = passes[:, :2] - passes[:, 2:]
    return noise(samples_of((effects[:, None] + blocks).tolist()))


@pytest.mark.parametrize(("launch", "each", "spikes"), [(0.01, 0.01, 0.0), (0.03, 0.03, 0.05), (0.05, 0.03, 0.0)])
def test_a_calibrated_machine_hardly_ever_calls_identical_code_promising(
    launch: float, each: float, spikes: float
) -> None:
    draw = np.random.default_rng(4)
    states = [
        simulate(0.0, "fast", draw, launch, each, spikes, prior=calibration(draw, launch, each, spikes))[0]
        for _ in range(1000)
    ]
    assert states.count("faster") <= 2, "two in a thousand are the budget of a session"


def test_noise_known_beforehand_decides_sooner() -> None:
    draw = np.random.default_rng(5)
    contract = Contract(numerics="reassociated", min_gain=0.08)
    passes = {
        prior: sum(len(simulate(0.3, "fast", draw, 0.03, 0.03, 0, contract, prior)[1]) for _ in range(200))
        for prior in (PRIOR, None)
    }
    assert passes[PRIOR] < 0.7 * passes[None]


def test_the_tier_that_admits_trusts_no_noise_known_beforehand() -> None:
    samples = samples_of([[0.1, 0.1], [0.3, 0.3]])
    prior = Noise(deviation=0.1, freedom=1000)
    assert outlook(samples, CONTRACT, "slow", 0, prior) == outlook(samples, CONTRACT, "slow", 0)
    assert outlook(samples, CONTRACT, "fast", 0, prior) != outlook(samples, CONTRACT, "fast", 0)


def test_pooled_variance_weighs_by_degrees_of_freedom() -> None:
    samples = samples_of([[0.10, 0.10], [0.14, 0.14]])
    pooled = estimate(samples, Noise(deviation=0.02, freedom=3))
    own = noise(samples).deviation
    assert pooled.freedom == 4
    assert pooled.error == pytest.approx(math.sqrt((3 * 0.02**2 + own**2) / 4 / 2))


def test_a_disturbed_session_speaks_for_itself_alone() -> None:
    samples = samples_of([[0.10, 0.10], [0.14, 0.14]])
    assert estimate(samples, Noise(deviation=0.01, freedom=100)) == estimate(samples)
    assert estimate(samples[:4], Noise(deviation=0.01, freedom=100)).freedom == 100
    assert estimate(samples_of([[0.0, 0.3]]), Noise(deviation=0.01, freedom=100)).freedom == 0


def test_what_a_machine_sees_after_so_many_pairs_is_seen_every_other_time() -> None:
    draw = np.random.default_rng(6)
    first, last = ends(CONTRACT, "fast")
    seen = visible(PRIOR, CONTRACT, "fast", last)
    states = [simulate(seen, "fast", draw, 0.03, 0.03, prior=PRIOR)[0] for _ in range(400)]
    assert 0.4 <= states.count("faster") / 400 <= 0.85
    assert visible(PRIOR, CONTRACT, "fast", first) > seen
    confirmed = visible(PRIOR, CONTRACT, "slow", CONTRACT.max_pairs)
    states = [simulate(confirmed, "slow", draw, 0.03, 0.03)[0] for _ in range(200)]
    assert 0.4 <= states.count("faster") / 200 <= 0.85


@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_single_passes_that_a_neighbour_slows_make_no_gain(tier: Tier) -> None:
    noisy = Noise(deviation=0.2, freedom=7)
    slowed = samples_of([[0.8, 0.0]] * 16)
    assert estimate(slowed).mean == pytest.approx(0.4)
    assert estimate(slowed).middle == pytest.approx(0.0)
    for count in range(1, 17):
        assert outlook(slowed[: 4 * count], CONTRACT, tier, 0, noisy).state != "faster"
    assert outlook(samples_of([[0.5, 0.3]] * CONTRACT.pairs_at(tier)), CONTRACT, tier, 0, noisy).state == "faster"


def test_one_per_cent_is_resolved_with_many_pairs() -> None:
    draw, patient = np.random.default_rng(8), Contract(numerics="reassociated", min_gain=0.01, max_pairs=96)
    faster = [simulate(0.02, "slow", draw, 0.02, 0.02, contract=patient)[0] for _ in range(60)]
    short = [simulate(0.02, "slow", draw, 0.02, 0.02)[0] for _ in range(60)]
    assert faster.count("faster") >= 0.8 * 60
    assert short.count("faster") <= 0.3 * 60
    assert [simulate(0.0, "slow", draw, 0.02, 0.02, contract=patient)[0] for _ in range(60)].count("faster") == 0
