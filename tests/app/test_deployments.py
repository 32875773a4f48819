"""Which candidate serves, and where it was judged."""

import json
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ledger.records import CONTRACT, DEPLOYMENT, FIRST, ROLLOUT, STOCK, SUBJECT, TARGET, WORKLOAD, candidate, run, turn
from reforward.app.config import load_config
from reforward.app.live import deployments
from reforward.app.subjects import Loaded
from reforward.domain.deployment import ANY_LENGTH, Validity
from reforward.domain.errors import BadInput, Unavailable
from reforward.engine.client import Source
from reforward.ledger.memory import MemoryLedger
from reforward.ledger.store import SqlLedger

LOADED = Loaded(subject=SUBJECT, stock=STOCK, source=Source())


def ledger_with(*gains: tuple[str, float]) -> MemoryLedger:
    made = MemoryLedger()
    made.append(CONTRACT, WORKLOAD, STOCK, SUBJECT, TARGET, run())
    for name, gain in gains:
        made.append(*turn(run(), candidate(name), STOCK, gain))
    return made


def test_without_a_verdict_the_stock_serves_everything() -> None:
    choice = deployments.best_choice(ledger_with(), LOADED, TARGET, CONTRACT)
    assert (choice.candidate, choice.verdict, choice.validity) == (STOCK, "", Validity())


def test_the_best_serves_what_it_was_judged_on() -> None:
    """The longest held-out request has 1 + 9 tokens, and two were in flight."""
    choice = deployments.best_choice(ledger_with(("first", 0.5), ("second", 0.9)), LOADED, TARGET, CONTRACT)
    assert choice.candidate == candidate("second")
    assert choice.verdict.startswith("verdict:")
    assert choice.validity == Validity(length=10, batch=2, dtype="float32")


def test_a_candidate_by_hand() -> None:
    ledger = ledger_with(("first", 0.5))
    ledger.append(candidate("unproven"))
    chosen = deployments.choose(ledger, LOADED, TARGET, CONTRACT, candidate("unproven").id)
    assert (chosen.verdict, chosen.validity.length) == ("", ANY_LENGTH)
    assert deployments.choose(ledger, LOADED, TARGET, CONTRACT, FIRST.id).verdict
    assert deployments.choose(ledger, LOADED, TARGET, CONTRACT, "stock").candidate == STOCK
    with pytest.raises(BadInput, match="is a workload, not the candidate"):
        deployments.choose(ledger, LOADED, TARGET, CONTRACT, WORKLOAD.id)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFORWARD_HOME", str(tmp_path))
    return tmp_path


def test_deployments_and_rollouts_are_listed_in_order(home: Path) -> None:
    config = load_config()
    later = replace(DEPLOYMENT, at="2027-01-01T00:00:00+00:00", cause="crashed", detail="gone")
    SqlLedger(config.ledger, config.blobs).append(later, ROLLOUT, DEPLOYMENT)
    lines = deployments.deployments(10)
    assert [line.what for line in lines][-1] == "crashed"
    assert {line.what for line in lines} == {"crashed", "promoted", "canary rolled-back"}
    assert len(deployments.deployments(1)) == 1


class Refusing(BaseHTTPRequestHandler):
    """Says no as a server does."""

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer k"
        self.send_response(404)
        self.end_headers()
        self.wfile.write(json.dumps({"error": {"message": "there is nothing here"}}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Quietly."""


@pytest.fixture
def refusing() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_verbs_without_a_server_say_so(home: Path, refusing: str) -> None:
    with pytest.raises(Unavailable, match="no server is running"):
        deployments.status()
    file = home / "serving.json"
    file.write_text(json.dumps({"address": refusing, "key": "k", "pid": 1}))
    with pytest.raises(BadInput, match="there is nothing here"):
        deployments.status()
    file.write_text(json.dumps({"address": "http://127.0.0.1:9", "key": "k", "pid": 1}))
    with pytest.raises(Unavailable, match="does not answer"):
        deployments.status()
