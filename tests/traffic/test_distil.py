"""Distilling: determinism, totals, strata, split in time."""

import dataclasses

import pytest

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request, Workload
from reforward.traffic.distil import Recipe, Service, concurrency, distil, fidelity, split, with_company
from reforward.traffic.likeness import Body, points
from reforward.traffic.packaged import CITATION, packaged_trace

REQUESTS = packaged_trace().requests


def make(recipe: Recipe, window: tuple[Request, ...] = REQUESTS) -> Workload:
    return distil(window, recipe, name="test", source=CITATION)


def test_same_seed_same_workload_and_another_seed_another() -> None:
    assert make(Recipe(count=6, seed=3)).id == make(Recipe(count=6, seed=3)).id
    assert make(Recipe(count=6, seed=3)).id != make(Recipe(count=6, seed=4)).id


@pytest.mark.parametrize("count", [4, 6, 8, 16])
@pytest.mark.parametrize("scale", [1.0, 1 / 4, 1 / 16])
def test_weighted_totals_match_the_window(count: int, scale: float) -> None:
    workload = make(Recipe(count=count, length_scale=scale))
    pairs = list(zip(workload.requests, workload.weights, strict=True))
    assert sum(workload.weights) == len(REQUESTS)
    assert sum(r.prompt_tokens * w for r, w in pairs) == pytest.approx(
        scale * sum(r.prompt_tokens for r in REQUESTS), rel=0.06
    )
    assert sum(r.output_tokens * w for r, w in pairs) == pytest.approx(
        scale * sum(r.output_tokens for r in REQUESTS), rel=0.06
    )


def test_sampled_requests_were_observed() -> None:
    observed = {(r.prompt_tokens, r.output_tokens) for r in REQUESTS}
    assert {(r.prompt_tokens, r.output_tokens) for r in make(Recipe(count=16)).requests} <= observed


def test_strata_are_of_equal_size_and_all_of_the_window() -> None:
    weights = make(Recipe(count=7)).weights
    assert max(weights) - min(weights) <= 1


def test_lengths_never_fall_below_one() -> None:
    workload = make(Recipe(count=8, length_scale=0.0001))
    assert all(r.prompt_tokens == 1 and r.output_tokens == 1 for r in workload.requests)


def test_a_window_smaller_than_the_sample_is_taken_whole() -> None:
    workload = make(Recipe(count=8), REQUESTS[:3])
    assert len(workload.requests) == 3
    assert workload.requests[0].arrival_s == 0.0


def test_concurrency_follows_littles_law() -> None:
    window = tuple(Request(arrival_s=float(i), prompt_tokens=1000, output_tokens=100) for i in range(101))
    service = Service(prefill_s=0.001, decode_s=0.02)
    assert concurrency(window, service) == 3
    assert concurrency(window[:1], service) == 1
    assert make(Recipe(count=8, service=service), window).concurrency == 3
    assert make(Recipe(count=8, concurrency=2), window).concurrency == 2
    assert make(Recipe(count=2, service=service), window).concurrency == 2


def test_the_split_holds_out_later_traffic() -> None:
    earlier, later = split(REQUESTS)
    assert earlier + later == REQUESTS
    assert earlier[-1].arrival_s <= REQUESTS[-1].arrival_s / 2 < later[0].arrival_s


def test_a_split_keeps_both_sides_filled() -> None:
    together = tuple(Request(arrival_s=0.0, prompt_tokens=1, output_tokens=1) for _ in range(3))
    earlier, later = split(together)
    assert (len(earlier), len(later)) == (2, 1)
    with pytest.raises(BadInput):
        split(together[:1])


def test_bad_recipes_and_windows_are_refused() -> None:
    for recipe in ({"count": 0}, {"length_scale": 0.0}, {"length_scale": 2.0}, {"concurrency": 0}):
        with pytest.raises(BadInput):
            Recipe(**recipe)
    with pytest.raises(BadInput):
        make(Recipe(), ())


@pytest.mark.parametrize("count", [4, 6, 16])
@pytest.mark.parametrize("scale", [1.0, 1 / 16])
def test_a_workload_is_nearer_to_later_traffic_than_requests_drawn_blindly(count: int, scale: float) -> None:
    earlier, later = split(REQUESTS)
    recipe = Recipe(count=count, length_scale=scale)
    found = fidelity(make(recipe, earlier), earlier, later, recipe)
    assert found.distance < 0.7 * found.by_chance
    assert found.floor < found.by_chance


def test_company_and_reuse_are_kept_together_with_lengths() -> None:
    """Requests of equal length, of which one in four reuses its prompt and comes in a crowd: strata of lengths do not see it."""
    new = Request(arrival_s=0.0, prompt_tokens=1000, output_tokens=50, in_flight=1)
    crowd = dataclasses.replace(new, reused_tokens=900, in_flight=16)
    window = [dataclasses.replace(new if i % 4 else crowd, arrival_s=float(i)) for i in range(200)]
    workload = make(Recipe(count=8), tuple(window))
    shares = {pair: 0.0 for pair in ((900, 16), (0, 1))}
    for request, weight in zip(workload.requests, workload.weights, strict=True):
        shares[request.reused_tokens, request.in_flight] += weight / len(window)
    assert shares[900, 16] == pytest.approx(0.25, abs=0.01)


def test_company_is_taken_from_the_trace_or_else_from_littles_assumption() -> None:
    told = (Request(arrival_s=0.0, prompt_tokens=1, output_tokens=1, in_flight=7),)
    assert with_company(told, Service()) == list(told)
    together = tuple(Request(arrival_s=0.0, prompt_tokens=1, output_tokens=1) for _ in range(3))
    assert [request.in_flight for request in with_company(together, Service())] == [1, 2, 3]


def test_scaled_reuse_stays_within_the_prompt_and_blocks_are_left_behind() -> None:
    window = tuple(
        Request(arrival_s=float(i), prompt_tokens=1001, output_tokens=9, reused_tokens=1001, blocks=(1, 2))
        for i in range(9)
    )
    for request in make(Recipe(count=4, length_scale=0.0333), window).requests:
        assert request.reused_tokens == request.prompt_tokens == 33
        assert request.blocks == ()


def test_the_distance_is_zero_for_the_same_and_grows_with_a_shift() -> None:
    body = Body(points(REQUESTS))
    assert body.energy(points(REQUESTS)) < 0.01
    near, far = (
        body.energy(
            points(
                [
                    Request(arrival_s=0, prompt_tokens=r.prompt_tokens * k, output_tokens=r.output_tokens)
                    for r in REQUESTS
                ]
            )
        )
        for k in (2, 4)
    )
    assert 0.01 < near < far
