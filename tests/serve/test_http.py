"""The API as clients see it: the official client, raw requests, bad input. The model is real, tiny and random."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest

from reforward.app.live.serving import Serving
from reforward.serve import hurry
from serve.server import get, post, running

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="session")
def client(serving: Serving) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{serving.address}/v1", api_key="none", max_retries=0)


def name(serving: Serving) -> str:
    return serving.service.model


def test_the_official_client(serving: Serving, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [name(serving)]
    assert client.models.retrieve(name(serving)).owned_by == "reforward"
    asked: dict[str, Any] = {"model": name(serving), "messages": HELLO, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    assert whole.usage.prompt_tokens == len("<user>Hello<assistant>")
    assert whole.choices[0].finish_reason == "length"
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == "length"


def test_log_probabilities_are_those_of_the_tokens(serving: Serving, client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": name(serving), "temperature": 0, "max_tokens": 6}
    chat = client.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=3, **asked)
    assert chat.choices[0].logprobs is not None
    for entry in chat.choices[0].logprobs.content or []:
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)
        assert len(entry.top_logprobs) == 3
    plain = client.completions.create(prompt="<user>Hello<assistant>", logprobs=2, **asked)
    found = plain.choices[0].logprobs
    assert found is not None
    assert found.token_logprobs == [entry.logprob for entry in chat.choices[0].logprobs.content or []]
    assert [len(top) for top in found.top_logprobs or []] == [2] * 6


def test_seeds_choices_and_several_prompts(serving: Serving) -> None:
    asked = {"prompt": ["ab", "abc"], "max_tokens": 9, "n": 2, "seed": 5, "return_token_ids": True, "temperature": 1.2}
    first, again = (post(serving, PLAIN, **asked)[1] for _ in range(2))
    ids = [choice["token_ids"] for choice in first["choices"]]
    assert ids == [choice["token_ids"] for choice in again["choices"]]
    assert len({tuple(one) for one in ids}) == 4
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2, 3]
    assert first["usage"] == {"prompt_tokens": 5, "completion_tokens": 36, "total_tokens": 41}
    assert [bytes(choice["prompt_token_ids"]) for choice in first["choices"]] != []
    other = post(serving, PLAIN, **(asked | {"seed": 6}))[1]
    assert [choice["token_ids"] for choice in other["choices"]] != ids


def test_stop_strings_cut_whole_and_streamed_alike(serving: Serving, client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": name(serving), "prompt": "abc", "temperature": 0, "max_tokens": 40}
    text = client.completions.create(**asked).choices[0].text
    stop = text[7:10]
    whole = client.completions.create(**asked, stop=[stop, "never this"]).choices[0]
    assert whole.finish_reason == "stop"
    assert whole.text == text.partition(stop)[0]
    streamed = list(client.completions.create(**asked, stop=stop, stream=True))
    assert "".join(chunk.choices[0].text for chunk in streamed) == whole.text


def test_answers_that_may_be_as_long_as_there_is_room(serving: Serving) -> None:
    status, answer = post(serving, CHAT, messages=HELLO, temperature=0)
    assert status == 200
    assert answer["usage"]["total_tokens"] == 256


BAD: list[tuple[str, bytes | dict[str, Any], int, str | None]] = [
    (CHAT, b"{", 400, None),
    (CHAT, b"", 400, None),
    (CHAT, b'{"model": "\xff\xfe"}', 400, None),
    (CHAT, b"[" * 100_000, 400, None),
    (CHAT, {"model": "another", "messages": HELLO}, 404, "model"),
    (CHAT, {"messages": []}, 400, "messages"),
    (CHAT, {"messages": [{"role": "user"}]}, 200, None),
    (CHAT, {"messages": [{"role": "judge", "content": "x"}]}, 400, "messages[0].role"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages"),
    (CHAT, {"messages": HELLO, "max_tokens": 0}, 400, "max_tokens"),
    (CHAT, {"messages": HELLO, "max_tokens": -3}, 400, "max_tokens"),
    (CHAT, {"messages": HELLO, "max_tokens": 10**9}, 400, "messages"),
    (CHAT, {"messages": HELLO, "max_tokens": 10**40}, 400, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, 400, None),
    (CHAT, {"messages": HELLO, "max_tokens": "many"}, 400, "max_tokens"),
    (CHAT, {"messages": [{"role": "user", "content": "x" * 1000}]}, 400, "messages"),
    (CHAT, {"messages": HELLO, "temperature": 3}, 400, "temperature"),
    (CHAT, {"messages": HELLO, "top_p": 0}, 400, "top_p"),
    (CHAT, {"messages": HELLO, "n": 1000}, 400, "n"),
    (CHAT, {"messages": HELLO, "stop": ["x"] * 10_000}, 400, "stop"),
    (CHAT, {"messages": HELLO, "stop": [""]}, 400, "stop"),
    (CHAT, {"messages": HELLO, "seed": 2**70}, 400, "seed"),
    (CHAT, {"messages": HELLO, "top_logprobs": 2}, 400, "top_logprobs"),
    (CHAT, {"messages": HELLO, "stream_options": {}}, 400, "stream_options"),
    (CHAT, {"messages": HELLO, "frequency_penalty": 0.5}, 400, "frequency_penalty"),
    (CHAT, {"messages": HELLO, "tools": [{"type": "function"}]}, 400, "tools"),
    (CHAT, {"messages": HELLO, "wisdom": 1}, 400, "wisdom"),
    (PLAIN, {}, 400, None),
    (PLAIN, {"prompt": ""}, 400, "prompt"),
    (PLAIN, {"prompt": []}, 400, "prompt"),
    (PLAIN, {"prompt": [1, "a"]}, 400, "prompt"),
    (PLAIN, {"prompt": [5000]}, 400, "prompt"),
    (PLAIN, {"prompt": [-1]}, 400, "prompt"),
    (PLAIN, {"prompt": "a", "echo": True}, 400, "echo"),
    (PLAIN, {"prompt": "a", "suffix": "b"}, 400, "suffix"),
    (PLAIN, {"prompt": "a", "logprobs": 50}, 400, "logprobs"),
    ("/v1/embeddings", {"input": "a"}, 404, None),
]


@pytest.mark.parametrize(("path", "body", "status", "param"), BAD)
def test_bad_input(serving: Serving, path: str, body: bytes | dict[str, Any], status: int, param: str | None) -> None:
    found, answer = get(serving, path, body) if isinstance(body, bytes) else post(serving, path, **body)
    assert found == status, answer
    if status != 200:
        error = answer["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["param"] == param
        assert len(error["message"]) < 400


def test_whole_numbers_may_be_written_as_fractions(serving: Serving) -> None:
    assert post(serving, CHAT, messages=HELLO, max_tokens=3.0)[1]["usage"]["completion_tokens"] == 3
    assert post(serving, CHAT, messages=HELLO, max_tokens=3.5)[0] == 400


def test_the_document_says_what_is_accepted(serving: Serving) -> None:
    status, document = get(serving, "/openapi.json")
    assert status == 200
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/metrics"} == set(document["paths"])
    properties = document["components"]["schemas"]["ChatRequest"]["properties"]
    assert properties["model"]["enum"] == [name(serving)]
    assert properties["top_logprobs"]["anyOf"][0] == {"type": "integer", "minimum": 0, "maximum": 20}


def test_wrong_methods_and_paths(serving: Serving) -> None:
    assert get(serving, CHAT)[0] == 405
    assert get(serving, "/nothing")[1]["error"]["type"] == "invalid_request_error"
    assert get(serving, "/admin/status")[0] == 404
    assert get(serving, "/admin/status", Authorization="Bearer wrong")[0] == 404
    assert get(serving, "/admin/status", Authorization=f"Bearer {serving.key}")[1]["state"] == "ready"


def test_a_body_that_is_too_large_is_refused_before_it_has_come(serving: Serving) -> None:
    connection = http.client.HTTPConnection(serving.address.removeprefix("http://"), timeout=20)
    connection.putrequest("POST", CHAT)
    connection.putheader("Content-Length", str(64 << 20))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert "4,194,304 bytes" in json.loads(answer.read())["error"]["message"]
    connection.close()
    chunked = http.client.HTTPConnection(serving.address.removeprefix("http://"), timeout=20)
    with suppress(BrokenPipeError, ConnectionResetError):
        chunked.request("POST", CHAT, body=(b"x" * 65536 for _ in range(1024)), encode_chunked=True)
        assert chunked.getresponse().status == 413
    assert get(serving, "/health")[0] == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_gives_its_slot_back(serving: Serving, stream: bool) -> None:
    front = serving.front
    assert front is not None
    host, _, port = serving.address.removeprefix("http://").partition(":")
    asked = {"model": name(serving), "messages": HELLO, "stream": stream, "max_tokens": 200, "n": 4, "ignore_eos": True}
    body = json.dumps(asked).encode()
    with socket.create_connection((host, int(port)), timeout=30) as gone:
        gone.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        if stream:
            assert gone.recv(10)
        assert _within(30, lambda: front.load > 0)
    assert _within(30, lambda: front.load == 0)
    assert _within(30, lambda: all(lane.scheduler.idle for lane in serving.switch.driver.lanes.values()))


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.001)
    return holds()


def test_too_many_requests_are_told_when_to_come_back(serving: Serving) -> None:
    def ask(number: int) -> tuple[int, Any]:
        return post(serving, CHAT, messages=HELLO, max_tokens=150, ignore_eos=True)

    with ThreadPoolExecutor(30) as pool:
        found = list(pool.map(ask, range(30)))
    assert {status for status, _ in found} == {200, 429}
    refused = [answer for status, answer in found if status == 429]
    assert refused[0]["error"]["type"] == "rate_limit_error"
    assert "try again in" in refused[0]["error"]["message"]
    assert sum(status == 200 for status, _ in found) >= 12


def test_a_thousand_connections(serving: Serving) -> None:
    host, _, port = serving.address.removeprefix("http://").partition(":")
    held = [socket.create_connection((host, int(port)), timeout=20) for _ in range(1000)]
    try:
        assert post(serving, CHAT, messages=HELLO, max_tokens=3)[0] == 200
    finally:
        for one in held:
            one.close()


def test_metrics_add_up(serving: Serving) -> None:
    def counts() -> dict[str, float]:
        text = get(serving, "/metrics")[1].decode()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}

    labels = f'{{model_name="{name(serving)}"}}'
    before = counts()
    assert post(serving, CHAT, messages=HELLO, max_tokens=7, ignore_eos=True)[0] == 200
    assert post(serving, CHAT, messages=[])[0] == 400
    after = counts()
    grown = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
    assert grown[f"vllm:generation_tokens_total{labels}"] == 7
    assert grown[f"vllm:prompt_tokens_total{labels}"] == len("<user>Hello<assistant>")
    assert grown[f"vllm:time_to_first_token_seconds_count{labels}"] == 1
    assert grown[f"vllm:inter_token_latency_seconds_count{labels}"] == 6
    assert grown[f"vllm:e2e_request_latency_seconds_count{labels}"] == 1
    assert after[f"vllm:num_requests_running{labels}"] == 0
    assert after[f"reforward_ready{labels}"] == 1
    assert any('finished_reason="length"' in key for key in grown)
    assert any('status="400"' in key for key in grown)


def test_slow_headers_do_not_hold_a_connection(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hurry, "HEADERS_S", 0.2)
    host, _, port = serving.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as slow:
        slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        begun = time.monotonic()
        assert slow.recv(100) == b""
        assert time.monotonic() - begun < 5


def test_keys_are_asked_of_everybody(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFORWARD_API_KEY", "sesame")
    with running(model, tmp_path, length=64, slots=1) as locked:
        assert post(locked, CHAT, messages=HELLO)[0] == 401
        assert get(locked, "/v1/models", Authorization="Bearer guess")[1]["error"]["code"] == "invalid_api_key"
        assert get(locked, "/v1/models", Authorization="Bearer sesame")[0] == 200
        assert get(locked, "/health")[0] == 200
    assert not list(tmp_path.glob("serving.*"))


def test_exact_answers_do_not_depend_on_neighbours(model: Path, tmp_path: Path) -> None:
    asked = {"messages": HELLO, "temperature": 0, "max_tokens": 40, "logprobs": True, "ignore_eos": True}
    with running(model, tmp_path, length=256, exact=True) as exact:
        alone = post(exact, CHAT, **asked)[1]["choices"][0]["logprobs"]
        stop = threading.Event()

        def noise(number: int) -> None:
            while not stop.is_set():
                post(exact, PLAIN, prompt="x" * (7 * number + 3), max_tokens=5 + number, temperature=1)

        with ThreadPoolExecutor(3) as pool:
            for number in range(3):
                pool.submit(noise, number)
            beside = [post(exact, CHAT, **asked)[1]["choices"][0]["logprobs"] for _ in range(4)]
            stop.set()
    assert all(one == alone for one in beside)
