"""Replays: open loop, honest about its own lag, right lengths, shared prefixes, endpoints of several kinds."""

import dataclasses
import json
from pathlib import Path

import pytest

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request
from reforward.traffic.load import Play, play, spread
from reforward.traffic.native import Header
from reforward.traffic.prompts import Rate, prompt_text
from traffic.upstream import Upstream, serving


def requests(count: int, gap_s: float = 0.01, output: int = 6) -> tuple[Request, ...]:
    return tuple(Request(arrival_s=i * gap_s, prompt_tokens=40 + i, output_tokens=output) for i in range(count))


def plan(url: str, asked: tuple[Request, ...], **more: object) -> Play:
    return Play(requests=asked, header=Header(), url=f"{url}/v1", **more)  # type: ignore[arg-type]


def test_requests_leave_when_they_are_due_whatever_the_answers_do() -> None:
    """Each answer takes 0.3 s or more; in a closed loop of one, twenty would take twenty times as long."""
    with serving(Upstream(pause_s=0.05)) as url:
        facts = play(plan(url, requests(20, gap_s=0.02)))
    assert (facts.requests, facts.failed, facts.model) == (20, 0, "tiny")
    assert facts.e2e_s is not None
    assert facts.seconds < 10 * facts.e2e_s.p50, "they were in flight together"
    assert facts.ttft_s is not None
    assert facts.itl_s is not None
    assert 0.05 <= facts.ttft_s.p50 < facts.e2e_s.p50, "a server's pause is never shorter than it says"
    assert facts.e2e_s.p50 >= 0.3
    assert (facts.itl_s.samples, facts.lag_s.samples) == (100, 20)
    assert facts.slow_tail_tok_s is not None
    assert facts.slow_tail_tok_s <= 1 / 0.05


def test_lengths_are_the_observed_ones_scaled_and_as_the_server_counts() -> None:
    with serving(Upstream()) as url:
        facts = play(plan(url, requests(10, output=8), length_scale=0.5, time_scale=10))
    assert (facts.output_got, facts.output_asked) == (40, 40)
    assert facts.prompt_got == pytest.approx(facts.prompt_asked, abs=10), (
        "three tokens that the server adds are seen by the probe"
    )
    assert facts.fixed_length
    assert (facts.length_scale, facts.time_scale) == (0.5, 10)


@pytest.mark.parametrize(
    ("upstream", "fixed", "path"),
    [
        (Upstream(strict=True), False, "/v1/completions"),
        (Upstream(chat_only=True), True, "/v1/chat/completions"),
        (Upstream(counts=False), True, "/v1/completions"),
    ],
)
def test_endpoints_differ_in_manners(upstream: Upstream, fixed: bool, path: str) -> None:
    with serving(upstream) as url:
        facts = play(plan(url, requests(3)))
    assert (facts.failed, facts.fixed_length, facts.output_got) == (0, fixed, 18)
    assert facts.url.endswith(path)


def test_shared_prefixes_are_shared_again() -> None:
    upstream = Upstream()
    header = Header(block_size=64)
    asked = (
        Request(arrival_s=0.0, prompt_tokens=200, output_tokens=1, blocks=(1, 2, 3, 4)),
        Request(arrival_s=0.0, prompt_tokens=180, output_tokens=1, blocks=(1, 2, 9)),
        Request(arrival_s=0.0, prompt_tokens=190, output_tokens=1),
    )
    with serving(upstream) as url:
        play(dataclasses.replace(plan(url, asked), header=header))
    texts = [json.loads(body)["prompt"].split() for path, _, body in upstream.seen if path.endswith("completions")][-3:]
    one, two, other = (next(text for text in texts if len(text) == size) for size in (197, 177, 187))
    shared = [a == b for a, b in zip(one, two, strict=False)]
    assert all(shared[:128])
    assert not all(shared[128:140])
    assert one[:10] != other[:10]


def test_a_prompt_depends_on_seed_and_place_alone() -> None:
    request = Request(arrival_s=0.0, prompt_tokens=50, output_tokens=1)
    texts = [
        prompt_text(request, number, Header(), 1.0, Rate(), seed) for number, seed in ((0, 0), (0, 0), (1, 0), (0, 1))
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_rounded_times_are_spread_and_others_left_alone() -> None:
    rounded = tuple(Request(arrival_s=3.0 * (i // 10), prompt_tokens=1, output_tokens=1) for i in range(100))
    moved, step = spread(rounded, seed=1)
    assert step == 3.0
    assert len({request.arrival_s for request in moved}) == 100
    assert all(0 <= after.arrival_s - 3.0 * (i // 10) < 3.0 for i, after in enumerate(moved))
    assert spread(requests(10), seed=1) == (list(requests(10)), 0.0)


def test_a_server_that_fails_is_told_from_one_that_is_wrong(tmp_path: Path) -> None:
    with serving(Upstream()) as url:
        pass
    with pytest.raises(BadInput, match="names no model"):
        play(plan(url, requests(1)))
    with serving(Upstream()) as url, pytest.raises(BadInput, match="neither completions nor chat"):
        play(plan(f"{url}/nowhere", requests(1), model="tiny"))


def test_bad_plans_are_refused() -> None:
    for more in ({"length_scale": 0.0}, {"length_scale": 2.0}, {"time_scale": 0.0}):
        with pytest.raises(BadInput):
            plan("http://x", requests(1), **more)
    with pytest.raises(BadInput):
        plan("http://x", ())
