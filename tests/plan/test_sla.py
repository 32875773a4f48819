"""Limits and rates as people write them, and percentiles as they are meant."""

import numpy as np
import pytest

from reforward.domain.errors import BadInput
from reforward.plan.sla import parse_sla, weighted_percentile
from reforward.plan.traffic import PRESETS, Traffic, parse_rate


def test_a_limit_has_a_metric_a_percentile_and_a_unit() -> None:
    first, second = parse_sla(["ttft_p90=500ms", "itl_p99.9 = 0.03s"])
    assert (first.metric, first.percentile, first.seconds) == ("ttft", 90, 0.5)
    assert (second.name, second.words) == ("itl_p99.9", "itl_p99.9 <= 30 ms")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft_p90=500", "has no unit; give one of us, ms, s"),
        ("ttft_p90=500min", "has the unit 'min'"),
        ("latency_p90=1s", "'latency', which is none of ttft, itl"),
        ("ttft_p100=1s", "percentile 100"),
        ("ttft_p90=-1s", "must be above 0"),
        ("ttft_p90=1.2.3s", "'1.2.3' where a number belongs"),
        ("fast", "cannot be read; give it as METRIC_pPERCENTILE=TIME"),
    ],
)
def test_a_wrong_limit_is_named_with_the_remedy(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_sla([text])


def test_a_limit_given_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="limits ttft_p90 twice"):
        parse_sla(["ttft_p90=1s", "ttft_p90=2s"])


def test_rates() -> None:
    assert parse_rate("12/s") == 12
    assert parse_rate("90/m") == 1.5
    for wrong, says in (
        ("12", "a unit"),
        ("-3/s", "above 0"),
        ("0/s", "above 0"),
        ("1..2/s", "a number"),
        ("fast", "a number"),
    ):
        with pytest.raises(BadInput, match=says):
            parse_rate(wrong)


def test_weighted_percentiles_count_every_gap() -> None:
    values, counts = np.array([3.0, 1.0, 2.0]), np.array([1.0, 8.0, 1.0])
    assert [weighted_percentile(values, counts, place) for place in (50, 80, 90, 100)] == [1, 1, 2, 3]
    assert weighted_percentile(values, np.zeros(3), 50) == 0


def test_traffic_keeps_its_pattern_at_another_rate() -> None:
    traffic = Traffic.preset("code")
    slow, fast = traffic.at(2.0, 500), traffic.at(20.0, 500)
    np.testing.assert_allclose(slow.arrival, 10 * fast.arrival)
    assert traffic.at(5.0, 6000).rate == pytest.approx(5.0, rel=0.05)
    np.testing.assert_array_equal(traffic.at(1.0, 10, share=3).prompt, traffic.prompt[:30:3])


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_percentiles_that_they_state(name: str) -> None:
    prompt, output, _ = PRESETS[name]
    traffic = Traffic.preset(name)
    for lengths, drawn in ((prompt, traffic.prompt), (output, traffic.output)):
        assert np.median(drawn) == pytest.approx(lengths.p50, rel=0.1)
        assert np.percentile(drawn, 90) == pytest.approx(min(lengths.p90, lengths.most), rel=0.15)


def test_requests_under_way_are_met_in_proportion_to_their_answers() -> None:
    traffic = Traffic(
        arrival=np.arange(100.0), prompt=np.full(100, 10), output=np.where(np.arange(100) < 50, 9, 1), source="test"
    )
    mixed = traffic.under_way(1000, traffic.at(1.0, 10))
    under_way = mixed.prompt[:1000] + mixed.output[:1000]
    assert len(mixed) == 1010
    assert (under_way == 19).mean() == pytest.approx(0.9, abs=0.03)
    assert mixed.output.min() >= 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("100/0", "have no output tokens; they are failed calls"),
        ("nope", "there is no traffic 'nope': give a trace file"),
    ],
)
def test_traffic_without_answers_or_name_is_refused(name: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Traffic.preset(name)


def test_traffic_that_comes_all_at_once_has_no_pattern() -> None:
    traffic = Traffic(arrival=np.zeros(3), prompt=np.ones(3, int), output=np.ones(3, int), source="test")
    with pytest.raises(BadInput, match="give a trace that takes some time"):
        traffic.at(1.0, 3)
