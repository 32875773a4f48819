"""Swaps and kills under load, in small: nothing lost, doubled or missing. In large: bench/swap_soak.py and bench/crash_soak.py."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reforward.app.live.serving import Serving
from reforward.domain.candidate import Candidate
from reforward.domain.deployment import Deployment, Rollout
from reforward.serve.rollout import Policy
from reforward.serve.switch import Choice
from serve.server import get, post, running

PLAIN = "/v1/completions"
PROMPTS = ["a" * (1 + 17 * number % 90) + str(number) for number in range(12)]
MOST = 60


def other(serving: Serving, number: int = 0) -> Candidate:
    """The stock forward once more, as another candidate with the same state."""
    stock = serving.loaded.stock
    text = stock.text_of("forward.py")
    return stock.with_files({"forward.py": f"{text}\n# {number}\n"})


def twisted(serving: Serving, *lines: str) -> Candidate:
    """The stock forward whose `step` does something else after its work; `self.calls` counts, `batch` and `logits` are there."""
    body = "".join(f"        {line}\n" for line in lines)
    text = (
        "import os, time\nimport torch\nimport twin\n\nclass Forward(twin.Forward):\n    calls = 0\n\n"
        f"    def step(self, batch, logits):\n        super().step(batch, logits)\n        self.calls += 1\n{body}"
    )
    stock = serving.loaded.stock
    return stock.with_files({"forward.py": text, "twin.py": stock.text_of("forward.py") or ""})


@contextmanager
def load(serving: Serving) -> Iterator[Callable[[], list[tuple[int, int, Any]]]]:
    """Three clients that ask again and again while the block runs; gives a function that returns (prompt, status, answer)."""
    stop, found = threading.Event(), list[tuple[int, int, Any]]()

    def client(first: int) -> None:
        place = first
        while not stop.is_set():
            asked = {"max_tokens": MOST, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
            status, answer = post(serving, PLAIN, prompt=PROMPTS[place % len(PROMPTS)], **asked)
            found.append((place % len(PROMPTS), status, answer))
            place += 3

    def ended() -> list[tuple[int, int, Any]]:
        stop.set()
        for future in futures:
            future.result()
        return found

    with ThreadPoolExecutor(3) as pool:
        futures: list[Future[None]] = [pool.submit(client, number) for number in range(3)]
        try:
            yield ended
        finally:
            stop.set()


def ids(serving: Serving, prompt: str) -> list[int]:
    asked = {"max_tokens": MOST, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return post(serving, PLAIN, prompt=prompt, **asked)[1]["choices"][0]["token_ids"]


def records(serving: Serving, kind: type) -> list[Any]:
    return list(serving.ledger.records(kind.tag))


def test_twenty_swaps_change_no_answer(model: Path, tmp_path: Path) -> None:
    """In the exact mode, with slots handed over, every answer is the one that an undisturbed server gives."""
    with running(model, tmp_path, length=256, exact=True) as serving:
        quiet = [ids(serving, prompt) for prompt in PROMPTS]
        with load(serving) as ended:
            for number in range(20):
                assert (
                    serving.switch.deploy(Choice(candidate=other(serving, number)), None)
                    .result(60)
                    .startswith("forced")
                )
            found = ended()
        assert len(found) >= len(PROMPTS)
        for place, status, answer in found:
            assert status == 200, answer
            assert answer["choices"][0]["token_ids"] == quiet[place]
        assert serving.switch.driver.handed > 0
        assert serving.switch.driver.resumed == 0
        assert len(records(serving, Deployment)) == 21


def test_ten_kills_lose_nothing(model: Path, tmp_path: Path) -> None:
    draw = random.Random(1)
    with running(model, tmp_path, length=256) as serving:
        with load(serving) as ended:
            for _ in range(10):
                time.sleep(draw.uniform(0.05, 0.2))
                kill(serving)
            found = ended()
        assert len(found) >= 3, "each client was served"
        for _, status, answer in found:
            assert status == 200, answer
            assert len(answer["choices"][0]["token_ids"]) == MOST
            assert answer["usage"]["completion_tokens"] == MOST
        assert serving.switch.crashes == 10
        assert [one.cause for one in records(serving, Deployment)] == ["started"] + ["crashed"] * 10


def kill(serving: Serving) -> None:
    """`kill -9` of the worker in service, once there is one."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        lane = serving.switch.driver.lanes.get("main")
        if lane is not None and serving.switch.state == "ready":
            crashes = serving.switch.crashes
            os.kill(lane.worker.process.pid, signal.SIGKILL)
            while serving.switch.crashes == crashes:
                time.sleep(0.005)
            return
        time.sleep(0.005)
    raise AssertionError("no worker came back")


def test_the_engines_own_server_may_die_too(model: Path, tmp_path: Path) -> None:
    with running(model, tmp_path, length=256) as serving:
        with load(serving) as ended:
            time.sleep(0.1)
            assert serving.engine.server is not None
            serving.engine.server.process.kill()
            time.sleep(1)
            found = ended()
        assert all(status == 200 for _, status, _ in found)
        assert serving.switch.crashes >= 1
        assert get(serving, "/health")[0] == 200


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["time.sleep(0.02)"], "latency"),
        (["logits.fill_(float('nan')) if self.calls > 60 else None"], "not finite"),
        (["os._exit(0) if any(s.start > 70 for s in batch.segments) else None"], "without answering"),
        (["logits.mul_(1.05)"], "divergence"),
        (["time.sleep(3600) if self.calls > 60 else None"], "no answer within 3 s"),
    ],
)
def test_a_bad_candidate_that_is_forced_past_the_judge_is_rolled_back(
    serving: Serving, lines: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving.engine, "deadlines", replace(serving.engine.deadlines, step_s=3))
    before = len(records(serving, Rollout))
    with load(serving) as ended:
        future = serving.switch.deploy(Choice(candidate=twisted(serving, *lines)), Policy(requests=8, seconds=60))
        assert future.result(90).startswith("rolled-back")
        found = ended()
    assert all(status == 200 and len(answer["choices"][0]["token_ids"]) == MOST for _, status, answer in found)
    ruled = records(serving, Rollout)[before:]
    assert [one.outcome for one in ruled] == ["rolled-back"]
    assert words in ruled[0].reason
    assert serving.switch.deployed[-1].candidate == serving.loaded.stock.id


def test_a_good_candidate_is_promoted_and_taken_back(serving: Serving) -> None:
    with load(serving) as ended:
        good = other(serving, 99)
        ended_by = serving.switch.deploy(Choice(candidate=good), Policy(requests=8, seconds=60)).result(90)
        assert ended_by.startswith("promoted"), ended_by
        assert serving.switch.rollback().result(30).startswith("rolled-back")
        found = ended()
    assert all(status == 200 for _, status, _ in found)
    assert serving.switch.deployed[-1].candidate == serving.loaded.stock.id
