"""The proxy: bytes pass through unchanged and at once, and what passed is recorded as what it was."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from reforward.app.config import environment
from reforward.domain.errors import BadInput
from reforward.domain.workload import Sampling
from reforward.traffic.proxy import MOST_BODY, address
from reforward.traffic.trace import read_trace
from traffic.upstream import ODD, Upstream, serving

STREAMED: dict[str, Any] = {"model": "tiny", "stream": True, "max_tokens": 5}


class Captured:
    """A running `reforward capture`, and what it printed when it ended."""

    def __init__(self, process: subprocess.Popen[str], port: int, home: Path) -> None:
        self.process, self.port, self.home, self.said = process, port, home, ""

    def stop(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        self.said, _ = self.process.communicate(timeout=20)
        return self.said

    def rows(self) -> list[dict[str, Any]]:
        files = sorted((self.home / "traffic" / "default").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()[1:]]


@contextlib.contextmanager
def capturing(upstream: str, home: Path, *options: str) -> Iterator[Captured]:
    command = [sys.executable, "-m", "reforward.cli.main", "capture", "--upstream", upstream, "--port", "0", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment(), "REFORWARD_HOME": str(home), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    port = int(line.split("/v1")[0].rsplit(":", 1)[1])
    captured = Captured(process, port, home)
    try:
        yield captured
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        process.stdout.close()


def exchange(
    port: int, body: object, *, path: str = "/v1/completions", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """One raw exchange on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, data, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    found = answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def test_bytes_pass_unchanged_both_ways_and_shapes_are_recorded(tmp_path: Path) -> None:
    asked = {**STREAMED, "prompt": "one two three", "user": "odd", "temperature": 0.5, "seed": 7, "stop": ["a", "b"],
             "stream_options": {"include_usage": True}}  # fmt: skip
    whole = {"model": "tiny", "prompt": "one two", "max_tokens": 3}
    upstream = Upstream()
    with serving(upstream) as url, capturing(url, tmp_path) as proxy:
        for body, headers in ((asked, {}), (whole, {}), (whole, {"Accept-Encoding": "gzip"})):
            direct, passed = (exchange(port, body, **headers) for port in (port_of(url), proxy.port))
            assert passed[0] == direct[0]
            assert passed[2] == direct[2]
            same = ("content-type", "content-encoding", "transfer-encoding", "content-length")
            assert [passed[1].get(key) for key in same] == [direct[1].get(key) for key in same]
        assert ODD in exchange(proxy.port, asked)[2]
        (path, headers, body), (path_, headers_, body_) = upstream.seen[0], upstream.seen[1]
        assert (path, body) == (path_, body_)
        assert {k: v for k, v in headers.items() if k != "Host"} == {k: v for k, v in headers_.items() if k != "Host"}
        assert "4 of 4 calls recorded" in proxy.stop()
    trace = read_trace(tmp_path / "traffic" / "default")
    first, second, packed, _ = trace.requests
    assert trace.estimated == 0
    assert (first.prompt_tokens, first.output_tokens) == (6, 5)
    assert first.sampling == Sampling(temperature=0.5, max_tokens=5, stream=True, seeded=True, stops=2)
    assert (second.prompt_tokens, second.output_tokens) == (packed.prompt_tokens, packed.output_tokens) == (5, 3)
    rows = proxy.rows()
    assert [row["finish_reason"] for row in rows] == ["length"] * 4
    assert [("ttft_ms" in row, "estimated" in row) for row in rows] == [
        (True, False),
        (False, False),
        (False, False),
        (True, False),
    ]
    kept = "".join(file.read_text() for file in (tmp_path / "traffic").rglob("*.jsonl"))
    assert "three" not in kept


def test_a_stream_is_not_held_back(tmp_path: Path) -> None:
    upstream = Upstream(pause_s=0.2)
    with serving(upstream) as url, capturing(url, tmp_path) as proxy:
        with openai.OpenAI(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="none") as client:
            stream = client.completions.create(model="tiny", prompt="hello", max_tokens=5, stream=True)
            sent = [upstream.pieces for _ in stream]
        proxy.stop()
        assert sent[0] < 5, "the first piece is here before the last is sent"
        assert sent[-1] == 5
        (row,) = proxy.rows()
        assert (row["estimated"], row["output_length"]) == (True, 5), "without usage, events are counted"
        assert read_trace(tmp_path / "traffic" / "default").estimated == 1


def test_what_is_no_call_passes_unrecorded_and_a_header_opts_out(tmp_path: Path) -> None:
    with serving(Upstream()) as url, capturing(url, tmp_path) as proxy:
        status, headers, body = exchange(proxy.port, b"\x00\xff" * 1000, path="/echo?a=%2F&b=%20c")
        assert (status, headers["x-odd"], body) == (418, "yes", b"\x00\xff" * 1000)
        assert exchange(proxy.port, {**STREAMED, "prompt": "x"}, **{"X-No-Capture": "1"})[0] == 200
        assert exchange(proxy.port, b"no JSON")[0] == 400
        assert exchange(proxy.port, [1, 2])[0] in (400, 500)
        assert "0 of 2 calls recorded" in proxy.stop()
        assert "2 unreadable" in proxy.said


def test_a_client_that_goes_away_frees_the_server_and_is_recorded(tmp_path: Path) -> None:
    upstream = Upstream(pause_s=0.05)
    with serving(upstream) as url, capturing(url, tmp_path) as proxy:
        data = json.dumps({**STREAMED, "prompt": "x", "max_tokens": 400}).encode()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            client.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)
            )
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        until = time.monotonic() + 10
        while not upstream.gone and time.monotonic() < until:
            time.sleep(0.02)
        assert upstream.gone == 1
        proxy.stop()
        assert [row["status"] for row in proxy.rows()] == [499]


def test_a_server_that_breaks_off_is_broken_off_for_the_client_too(tmp_path: Path) -> None:
    with serving(Upstream()) as url, capturing(url, tmp_path) as proxy:
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            exchange(proxy.port, {**STREAMED, "prompt": "x", "user": "break"})
        proxy.stop()
        assert [row["status"] for row in proxy.rows()] == [502]


def test_a_server_that_is_not_there_is_an_error_that_clients_understand(tmp_path: Path) -> None:
    with serving(Upstream()) as url:
        pass
    with capturing(url, tmp_path) as proxy:
        status, _, body = exchange(proxy.port, {**STREAMED, "prompt": "x"})
        assert (status, json.loads(body)["error"]["type"]) == (502, "server_error")


def test_a_full_disk_does_not_stop_service(tmp_path: Path) -> None:
    (tmp_path / "traffic").mkdir()
    (tmp_path / "traffic" / "default").write_text("in the way")
    with serving(Upstream()) as url, capturing(url, tmp_path) as proxy:
        assert exchange(proxy.port, {**STREAMED, "prompt": "x"})[0] == 200
        assert "0 for lack of time, 1 for lack of disk" in proxy.stop().replace(" dropped", "")


def test_answers_under_way_end_before_the_proxy_does(tmp_path: Path) -> None:
    with serving(Upstream(pause_s=0.1)) as url, capturing(url, tmp_path) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
        connection.request("POST", "/v1/completions", json.dumps({**STREAMED, "prompt": "x", "max_tokens": 10}))
        answer = connection.getresponse()
        proxy.process.send_signal(signal.SIGTERM)
        assert answer.read().endswith(b"data: [DONE]\n\n")
        assert "1 of 1 calls recorded" in proxy.stop()


def test_contents_are_kept_only_when_asked_for_and_can_be_read_and_purged(tmp_path: Path) -> None:
    secret = "my name is Ada"

    def reforward(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "reforward.cli.main", *words]
        around = {**environment(), "REFORWARD_HOME": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, env=around, check=False)

    with serving(Upstream()) as url:
        with capturing(url, tmp_path) as proxy:
            exchange(proxy.port, {**STREAMED, "prompt": secret})
            proxy.stop()
        assert not (tmp_path / "keys" / "content.key").exists()
        assert reforward("trace", "contents", "default").returncode == 2
        with capturing(url, tmp_path, "--content", "1") as proxy:
            exchange(proxy.port, {**STREAMED, "prompt": secret})
            proxy.stop()
    told = json.loads(reforward("trace", "contents", "default").stdout)
    assert told["prompt"] == secret
    assert "w " in told["answer"]
    on_disk = b"".join(path.read_bytes() for path in (tmp_path / "traffic").rglob("*") if path.is_file())
    assert b"Ada" not in on_disk
    assert "deleted 2 files of shapes and 1 files of contents" in reforward("trace", "purge", "--days", "0").stdout
    assert not (tmp_path / "keys" / "content.key").exists()


@pytest.mark.parametrize("upstream", ["localhost:8000", "ftp://x", "http://", "http://x?a=1"])
def test_what_is_no_address_is_refused(upstream: str) -> None:
    with pytest.raises(BadInput, match="is no address"):
        address(upstream)


def test_the_version_of_an_address_is_the_clients() -> None:
    assert address("http://x:1/v1/") == address("http://x:1") == "http://x:1"
    assert address("https://x/openai") == "https://x/openai"


def test_a_body_too_large_to_be_held_streams_through(tmp_path: Path) -> None:
    body = b"x" * (MOST_BODY + 3_000_000)
    with serving(Upstream()) as url, capturing(url, tmp_path) as proxy:
        status, _, back = exchange(proxy.port, body, path="/echo")
        assert (status, len(back), back == body) == (418, len(body), True)
