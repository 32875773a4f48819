"""Drift: silent on unchanged traffic, and loud when one client starts or stops."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request
from reforward.traffic.drift import Drift, Looked
from reforward.traffic.packaged import packaged_code_trace, packaged_trace
from reforward.traffic.psi import Deciles, own_noise
from reforward.traffic.shift import joins, leaves

CHAT, CODE = packaged_trace().requests, packaged_code_trace().requests
WINDOW, REFERENCE = 200, 800


def first_alarm(requests: Sequence[Request]) -> Looked | None:
    """With the first requests as the reference."""
    return next(
        (looked for looked in Drift(requests[:REFERENCE], WINDOW).watch(requests[REFERENCE:]) if looked.alarms), None
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_same_traffic_in_another_order_is_no_alarm(seed: int) -> None:
    """Runs of 20 requests stay together, so that traffic stays as restless as it was from minute to minute."""
    pieces = [CHAT[start : start + 20] for start in range(0, len(CHAT), 20)]
    random.Random(seed).shuffle(pieces)
    assert first_alarm([request for piece in pieces for request in piece]) is None


@pytest.mark.parametrize("share", [0.4, 0.5, 0.7])
def test_a_client_that_joins_is_noticed(share: float) -> None:
    mixed = joins(CHAT, CODE, CHAT[REFERENCE].arrival_s, share)
    found = first_alarm(mixed)
    assert found is not None
    assert found.requests <= 6 * WINDOW
    assert "output" in {measure.name for measure in found.alarms}, "code completions are short"
    assert all(measure.times > 1.5 for measure in found.alarms)
    assert "shifted: " in found.words


def test_a_client_that_stops_is_noticed() -> None:
    """One that sent evenly. In bursts that fill whole windows it makes the reference so restless that its end is no surprise."""
    even = [replace(request, arrival_s=float(place)) for place, request in enumerate(CODE)]
    mixed = leaves(CHAT, even, CHAT[1000].arrival_s, 0.5)
    stopped = sum(request.arrival_s < CHAT[1000].arrival_s for request in mixed)
    drift = Drift(mixed[:stopped], WINDOW)
    assert any(looked.alarms for looked in drift.watch(mixed[stopped:]))


def test_one_strange_window_is_no_alarm() -> None:
    odd = [*CHAT[:REFERENCE], *CODE[:WINDOW], *CHAT[REFERENCE : REFERENCE + 3 * WINDOW]]
    looks = list(Drift(odd[:REFERENCE], WINDOW).watch(odd[REFERENCE:]))
    assert looks[0].measures[1].other
    assert not any(looked.alarms for looked in looks)


def test_an_alarm_needs_the_trigger_too() -> None:
    looks = list(Drift(CHAT[:REFERENCE], WINDOW).watch(CODE[: 4 * WINDOW]))
    assert [bool(looked.alarms) for looked in looks] == [False, False, True, True], "three windows in a row"
    measure = looks[2].alarms[0]
    assert measure.triggered
    assert measure.in_a_row == 3


@pytest.mark.parametrize("odd", [10, 20, 40, 80])
def test_unrest_at_the_end_of_the_reference_does_not_blind_the_trigger(odd: int) -> None:
    reference = [*CHAT[: REFERENCE - odd], *CODE[:odd]]
    looks = list(Drift(reference, WINDOW).watch(CODE[odd : odd + 3 * WINDOW]))
    assert all(measure.triggered for measure in looks[2].measures if measure.name == "output")


def test_reuse_is_watched_where_the_trace_knows_it() -> None:
    same = [
        Request(arrival_s=float(i), prompt_tokens=1000 + i % 90, output_tokens=50 + i % 7, reused_tokens=900)
        for i in range(800)
    ]
    fresh = [
        Request(arrival_s=float(i), prompt_tokens=1000 + i % 90, output_tokens=50 + i % 7) for i in range(800, 1600)
    ]
    drift = Drift(same, WINDOW)
    assert set(drift.limits) == {"prompt", "output", "new prompt"}
    alarm = next(looked for looked in drift.watch(fresh) if looked.alarms)
    assert [measure.name for measure in alarm.alarms] == ["new prompt"]
    assert set(Drift(CHAT[:REFERENCE], WINDOW).limits) == {"prompt", "output"}


def test_restless_references_raise_the_limit() -> None:
    draw = np.random.default_rng(0)
    calm = draw.normal(size=4000)
    restless = calm + np.repeat(draw.normal(size=20), 200)
    assert own_noise(calm, 200) < 0.25 < own_noise(restless, 200)


def test_the_index_of_known_shares() -> None:
    deciles = Deciles(np.arange(1000.0))
    assert deciles.psi(np.arange(1000.0)) == pytest.approx(0.0, abs=1e-3)
    half = np.arange(500.0)
    assert deciles.psi(half) == pytest.approx(5 * (0.1 * np.log(2)) + 5 * (0.1 - 1e-4) * np.log(0.1 / 1e-4), rel=0.02)
    assert deciles.times(np.arange(1000.0) + 1) == pytest.approx(2.0, rel=0.01)
    assert Deciles(np.ones(100)).psi(np.ones(50)) == pytest.approx(0.0, abs=1e-3), "ties leave one bin"


def test_the_client_has_its_share_and_keeps_its_order() -> None:
    at = CHAT[1000].arrival_s
    mixed = joins(CHAT, CODE, at, 0.25)
    shapes = {(r.prompt_tokens, r.output_tokens) for r in CODE} - {(r.prompt_tokens, r.output_tokens) for r in CHAT}
    after = [request for request in mixed if request.arrival_s >= at]
    foreign = [request for request in after if (request.prompt_tokens, request.output_tokens) in shapes]
    assert len(after) == pytest.approx(1000 / 0.75, rel=0.01)
    assert 0.2 < len(foreign) / len(after) <= 0.26
    assert mixed[:1000] == CHAT[:1000]
    assert list(mixed) == sorted(mixed, key=lambda request: request.arrival_s)
    few = joins(CHAT, CODE[:100], at, 0.5)
    assert sum(request.arrival_s >= at for request in few) == 200, "the base ends with the client's last request"


def test_windows_and_mixes_that_say_nothing_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 200"):
        Drift(CHAT, 100)
    with pytest.raises(BadInput, match="does not tell its own noise"):
        Drift(CHAT[:700], 200)
    with pytest.raises(BadInput, match="share"):
        joins(CHAT, CODE, 0.0, 1.0)
    with pytest.raises(BadInput, match="too few"):
        leaves(CHAT, CODE[:10], CHAT[1000].arrival_s, 0.5)
