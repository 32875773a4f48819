"""`reforward serve` and its verbs as processes: warm before healthy, drained at SIGTERM, found through a file of the owner's."""

import http.client
import json
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reforward.app.config import environment


class Command:
    """A server process and the verbs that speak to it."""

    def __init__(self, model: Path, home: Path) -> None:
        self.around = environment() | {"REFORWARD_HOME": str(home), "REFORWARD_CACHE": str(home / "cache")}
        self.home, self.model = home, model.name
        command = [sys.executable, "-m", "reforward.cli.main", "serve", str(model), "--port", "0", "--length", "500"]
        self.process = subprocess.Popen(
            [*command, "--threads", "1"], env=self.around, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.address = ""

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=60)

    def healthy(self) -> int:
        connection = self.connect()
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status
        except ConnectionError:
            return 0
        finally:
            connection.close()

    def wait(self) -> None:
        until = time.monotonic() + 90
        while time.monotonic() < until:
            file = self.home / "serving.json"
            if file.is_file():
                self.address = json.loads(file.read_text())["address"].removeprefix("http://")
                if self.healthy() == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("not healthy in time")

    def verb(self, *words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "reforward.cli.main", *words]
        done = subprocess.run(command, env=self.around, capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def command(model: Path, tmp_path: Path) -> Iterator[Command]:
    one = Command(model, tmp_path)
    try:
        one.wait()
        yield one
    finally:
        one.process.kill()
        one.process.wait()


def test_the_verbs_and_a_drain(command: Command) -> None:
    assert stat.S_IMODE((command.home / "serving.json").stat().st_mode) == 0o600
    assert f"{command.model}: ready" in command.verb("status")[1]
    facts: dict[str, Any] = json.loads(command.verb("status", "--json")[1])
    stock = facts["serves"]["candidate"]
    code, told = command.verb("deploy", stock, "--force")
    assert (code, told.startswith("forced")) == (0, True), told
    code, told = command.verb("rollback")
    assert code == 2
    assert "no deployment of another candidate" in told
    assert [line.split()[3] for line in command.verb("deployments")[1].splitlines()] == ["started", "forced"]
    assert command.verb("deploy", "ffffffff")[0] == 2
    connection = command.connect()
    body = {"model": command.model, "prompt": "abc", "max_tokens": 400, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body | {"stream_options": {"include_usage": True}}))
    answer = connection.getresponse()
    assert answer.read(20)
    command.process.send_signal(signal.SIGTERM)
    rest = answer.read().decode()
    assert rest.endswith("data: [DONE]\n\n")
    assert '"completion_tokens":400' in rest
    assert command.process.wait(60) == 0
    assert command.process.stdout is not None
    assert "draining 1 requests" in command.process.stdout.read()
    assert not (command.home / "serving.json").exists()
    code, told = command.verb("status")
    assert (code, "no server is running" in told) == (3, True)


def test_what_cannot_be_served_is_told_at_once(model: Path, tmp_path: Path) -> None:
    around = environment() | {"REFORWARD_HOME": str(tmp_path)}
    for words, code, told in (
        ([str(model), "--slots", "0"], 2, "--slots must lie between 1 and 256"),
        ([str(model), "--candidate", "12345678"], 2, "12345678"),
        (["examples/science/fracast/subject.py"], 2, "only language models"),
    ):
        command = [sys.executable, "-m", "reforward.cli.main", "serve", *words]
        done = subprocess.run(command, env=around, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, told in done.stderr) == (code, True), done.stderr
