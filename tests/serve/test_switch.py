"""Swaps, deaths and rollouts under load, on the scripted engine: nothing is lost, doubled or missing."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from reforward.domain.deployment import Deployment, Rollout, Validity
from reforward.domain.errors import BadInput, CandidateFailed
from reforward.engine.scripted import Pace, Role, scripted_candidate
from reforward.serve.rollout import Policy
from reforward.serve.switch import Choice
from serve.host import STOCK, Asked, Served

OTHER, BAD = scripted_candidate("other"), scripted_candidate("bad")
PROMPTS = [[number % 60 + 1, *range(1, number % 23 + 2)] for number in range(40)]


@pytest.fixture
def served() -> Iterator[Served]:
    one = Served().start()
    yield one
    one.close()


def check(served: Served, asked: list[Asked], prompts: list[list[int]], most: int) -> None:
    for one, prompt in zip(asked, prompts, strict=True):
        one.wait()
        assert [piece.token for piece in one.pieces] == one.sequence.produced == served.expected(prompt, most)
        assert [piece.reason for piece in one.pieces] == [None] * (most - 1) + ["length"]


def kinds(served: Served, kind: type) -> list:
    return [record for record in served.records if isinstance(record, kind)]


def test_it_serves(served: Served) -> None:
    asked = [served.ask(prompt, 9) for prompt in PROMPTS]
    check(served, asked, PROMPTS, 9)
    assert [one.cause for one in kinds(served, Deployment)] == ["started"]


@pytest.mark.parametrize("exact", [False, True])
def test_swaps_under_load_hand_over_slots(exact: bool) -> None:
    served = Served(exact=exact).start()
    asked = [served.ask(prompt, 80) for prompt in PROMPTS[:12]]
    for number in range(10):
        choice = Choice(candidate=OTHER if number % 2 == 0 else STOCK)
        assert served.switch.deploy(choice, None).result(20).startswith("forced")
    check(served, asked, PROMPTS[:12], 80)
    assert served.switch.driver.handed > 0
    assert served.switch.driver.resumed == 0
    deployments = kinds(served, Deployment)
    assert len(deployments) == 11
    assert [one.replaces for one in deployments[1:]] == [one.id for one in deployments[:-1]]
    alive = [worker for worker in served.engine.started if not worker.closed]
    assert len(alive) == 2, "main and one old worker"
    served.close()


def test_a_worker_that_dies_again_and_again_loses_no_request() -> None:
    """Every stock worker dies after a while; each request that makes headway goes on."""
    served = Served(stock=Role(fails=("run", 40))).start()
    asked = [served.ask(prompt, 12) for prompt in PROMPTS]
    check(served, asked, PROMPTS, 12)
    assert served.switch.crashes > 3
    assert {one.cause for one in kinds(served, Deployment)} == {"started", "crashed"}
    served.close()


@pytest.mark.parametrize("calls", range(10, 40, 3))
@pytest.mark.parametrize("dies", ["old", "new"])
def test_a_worker_that_dies_around_a_swap_loses_no_request(dies: str, calls: int) -> None:
    """Before, within and after the rounds in which slots are handed over one by one, with requests waiting for a slot."""
    mortal = Role(fails=("run", calls))
    served = Served({OTHER.id: mortal if dies == "new" else Role()}, stock=mortal if dies == "old" else None).start()
    asked = [served.ask(prompt, 30) for prompt in PROMPTS[:9]]
    served.switch.deploy(Choice(candidate=OTHER), None).result(20)
    check(served, asked, PROMPTS[:9], 30)
    served.close()


def test_a_request_that_no_worker_survives_ends_with_an_error() -> None:
    poison = {"on": False}

    def deadly(rows: np.ndarray, before: np.ndarray | None, draw: np.random.Generator) -> np.ndarray:
        if poison["on"]:
            raise CandidateFailed("run", "poisoned")
        return rows

    served = Served(stock=Role(twist=deadly)).start()
    poison["on"] = True
    one = served.ask([7, 8], 5).wait()
    assert [piece.reason for piece in one.pieces] == ["error"]
    assert "worker after worker died" in one.pieces[-1].error
    poison["on"] = False
    check(served, [served.ask([7, 8], 5)], [[7, 8]], 5)
    served.close()


def poisoned(rows: np.ndarray, before: np.ndarray | None, draw: np.random.Generator) -> np.ndarray:
    rows = rows.copy()
    rows[0, 5] = np.nan
    return rows


def test_a_forward_that_turns_to_nan_is_replaced_before_anybody_sees_it() -> None:
    calls = {"seen": 0}

    def later(rows: np.ndarray, before: np.ndarray | None, draw: np.random.Generator) -> np.ndarray:
        calls["seen"] += 1
        return poisoned(rows, before, draw) if calls["seen"] > 30 else rows

    served = Served({BAD.id: Role(twist=later)}).start(BAD)
    asked = [served.ask(prompt, 12) for prompt in PROMPTS[:8]]
    check(served, asked, PROMPTS[:8], 12)
    until = time.monotonic() + 10
    while len(kinds(served, Deployment)) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    last = kinds(served, Deployment)[-1]
    assert (last.cause, last.candidate) == ("crashed", STOCK.id)
    assert "not finite" in last.detail
    served.close()


def trial(
    served: Served, candidate: object, policy: Policy | None = None
) -> tuple[Rollout, list[Asked], list[list[int]]]:
    """Deploy under a stream of requests until it is decided."""
    policy = policy or Policy(requests=8, seconds=20)
    future = served.switch.deploy(Choice(candidate=candidate), policy)
    asked, prompts = list[Asked](), list[list[int]]()
    while not future.done():
        prompts.append(PROMPTS[len(prompts) % len(PROMPTS)])
        asked.append(served.ask(prompts[-1], 10))
        if len(asked) > 6:
            asked[-6].wait()
    future.result()
    return kinds(served, Rollout)[-1], asked, prompts


@pytest.mark.parametrize("mirror", [False, True])
def test_a_canary_that_does_as_well_is_promoted(mirror: bool) -> None:
    served = Served({OTHER.id: Role(halves=True)}).start()
    ended, asked, prompts = trial(served, OTHER, Policy(requests=8, seconds=20, mirror=mirror))
    assert (ended.outcome, ended.requests >= 8) == ("promoted", True), ended
    assert {finding.check for finding in ended.findings} == {
        "memory",
        "latency",
        "typical divergence",
        "worst divergence",
    }
    check(served, asked, prompts, 10)
    assert kinds(served, Deployment)[-1].candidate == OTHER.id
    served.close()


@pytest.mark.parametrize(
    ("role", "words"),
    [
        (Role(pace=Pace(step_s=0.03)), "latency"),
        (Role(twist=poisoned), "not finite"),
        (Role(fails=("run", 30)), "scripted failure"),
        (Role(fails=("load", 0)), "scripted failure"),
        (Role(private=1 << 40), "memory"),
        (Role(twist=lambda rows, before, draw: rows * np.float32(1.2)), "divergence"),
    ],
)
def test_a_bad_canary_is_rolled_back_by_itself(role: Role, words: str) -> None:
    served = Served({BAD.id: role}).start()
    ended, asked, prompts = trial(served, BAD)
    assert ended.outcome == "rolled-back"
    assert words in ended.reason
    check(served, asked, prompts, 10)
    assert [one.candidate for one in kinds(served, Deployment)] == [STOCK.id]
    assert served.switch.driver.lanes.keys() == {"main"}
    served.close()


def test_without_traffic_a_canary_is_inconclusive(served: Served) -> None:
    assert served.switch.deploy(Choice(candidate=OTHER), Policy(seconds=0.3)).result(20).startswith("inconclusive")
    assert kinds(served, Rollout)[-1].outcome == "inconclusive"
    assert served.switch.driver.lanes.keys() == {"main"}


def test_rollback_goes_to_the_warm_worker_and_back_by_id(served: Served) -> None:
    first = served.switch.deployed[0]
    served.switch.deploy(Choice(candidate=OTHER), None).result(20)
    assert served.switch.rollback().result(20).startswith("rolled-back")
    assert served.switch.deployed[-1].candidate == STOCK.id
    assert "still warm" in served.switch.deployed[-1].detail
    served.switch.deploy(Choice(candidate=OTHER), None).result(20)
    served.switch.rollback(first.id).result(20)
    assert served.switch.deployed[-1].candidate == STOCK.id
    with pytest.raises(BadInput, match="no deployment ffff"):
        served.switch.rollback("ffff").result(20)
    started = len(served.engine.started)
    asked = [served.ask(prompt, 5) for prompt in PROMPTS]
    check(served, asked, PROMPTS, 5)
    assert len(served.engine.started) == started


def test_what_lies_outside_the_validity_goes_to_the_stock() -> None:
    served = Served().start()
    choice = Choice(candidate=OTHER, validity=Validity(length=16, batch=2))
    served.switch.deploy(choice, None).result(20)
    long, grows, short = served.ask(range(1, 30), 4), served.ask([3, 4], 40), served.ask([5, 6], 4)
    for one, prompt, most in ((long, list(range(1, 30)), 4), (grows, [3, 4], 40), (short, [5, 6], 4)):
        check(served, [one], [prompt], most)
    assert long.sequence.served_by == STOCK.id
    assert grows.sequence.served_by == STOCK.id
    assert short.sequence.served_by == OTHER.id
    served.close()


def test_cancelled_requests_are_forgotten(served: Served) -> None:
    asked = [served.ask([number + 1], 120) for number in range(6)]
    for one in asked[::2]:
        served.switch.driver.cancel(one.sequence)
    for one in asked[::2]:
        assert one.wait().pieces[-1].reason == "abort"
    check(served, asked[1::2], [[2], [4], [6]], 120)


def test_the_same_seed_draws_the_same_across_a_swap(served: Served) -> None:
    plain = served.ask(PROMPTS[3], 60, seed=9).wait()
    again = served.ask(PROMPTS[3], 60, seed=9)
    served.switch.deploy(Choice(candidate=OTHER), None).result(20)
    assert again.wait().sequence.produced == plain.sequence.produced
