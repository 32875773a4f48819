"""Which candidate may serve and where it was judged; and what the verbs ask of a running server."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from reforward.app.config import Config, load_config
from reforward.app.subjects import Loaded
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.deployment import Deployment, Rollout, Validity
from reforward.domain.errors import BadInput, Unavailable
from reforward.domain.ports import Ledger
from reforward.domain.run import Run
from reforward.domain.target import Target
from reforward.domain.verdict import Verdict
from reforward.domain.workload import Workload
from reforward.ledger.store import SqlLedger
from reforward.ledger.views import accepted, best_candidate, every, only
from reforward.serve.switch import Choice

STATUS_S = 30.0
DEPLOY_S = 3600.0
"""A build, a warm-up and a canary."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One deployment or rollout, for people."""

    id: str
    at: str
    candidate: str
    what: str
    detail: str
    seconds: float


def best_choice(ledger: Ledger, loaded: Loaded, target: Target, contract: Contract) -> Choice:
    """The best accepted candidate, or the stock forward."""
    best = best_candidate(ledger, loaded.subject, target, contract)
    if best is None:
        return Choice(candidate=loaded.stock)
    return _judged(ledger, loaded, target, contract, best)


def choose(ledger: Ledger, loaded: Loaded, target: Target, contract: Contract, text: str) -> Choice:
    """A candidate by id, or `stock`. One that no verdict accepts is served at all lengths, on its chooser's word."""
    if text == "stock":
        return Choice(candidate=loaded.stock)
    found = ledger.find(text)
    if not isinstance(found, Candidate) or found.host != "lm":
        raise BadInput(f"{text!r} is a {found.tag}, not the candidate of a language model; see log or best")
    return _judged(ledger, loaded, target, contract, found)


def _judged(ledger: Ledger, loaded: Loaded, target: Target, contract: Contract, candidate: Candidate) -> Choice:
    """Its last accepting verdict on this target, and what that was taken on."""
    found: Verdict | None = None
    held_out: Workload | None = None
    for turn, verdict in accepted(ledger, loaded.subject, target, contract):
        if verdict.candidate == candidate.id:
            found, held_out = verdict, only(ledger.get(only(ledger.get(turn.run), Run).held_out), Workload)
    if found is None or held_out is None:
        return Choice(candidate=candidate)
    batch = min(held_out.concurrency, len(held_out.requests))
    return Choice(
        candidate=candidate,
        verdict=found.id,
        validity=Validity(length=held_out.longest, batch=batch, dtype=loaded.subject.dtype),
    )


def deployments(limit: int) -> tuple[Line, ...]:
    """Of the ledger, newest last."""
    config = load_config()
    ledger = SqlLedger(config.ledger, config.blobs)
    lines = [
        Line(id=one.id, at=one.at, candidate=one.candidate, what=one.cause, detail=one.detail, seconds=one.seconds)
        for one in every(ledger, Deployment)
    ]
    lines += [
        Line(
            id=one.id,
            at=one.at,
            candidate=one.candidate,
            what=f"canary {one.outcome}",
            detail=one.reason,
            seconds=one.seconds,
        )
        for one in every(ledger, Rollout)
    ]
    return tuple(sorted(lines, key=lambda line: line.at)[-limit:])


def status() -> dict[str, Any]:
    """Of the running server."""
    return _ask(load_config(), "GET", "status", None, STATUS_S)


def rollback(to: str) -> str:
    """Have the running server go back; tells how it ended."""
    return _ask(load_config(), "POST", "rollback", {"to": to}, DEPLOY_S)["ended"]


def pause() -> str:
    """Have the search beside the running server begin nothing new."""
    return _ask(load_config(), "POST", "pause", {}, STATUS_S)["ended"]


def resume() -> str:
    """Have it go on."""
    return _ask(load_config(), "POST", "resume", {}, STATUS_S)["ended"]


def deploy(candidate: str, *, canary: bool, requests: int, mirror: bool) -> str:
    """Have the running server bring a candidate into service; tells how it ended."""
    body = {"candidate": candidate, "canary": canary, "requests": requests, "mirror": mirror}
    return _ask(load_config(), "POST", "deploy", body, DEPLOY_S)["ended"]


def _ask(config: Config, method: str, what: str, body: Any, seconds: float) -> Any:
    path = config.home / "serving.json"
    if not path.is_file():
        raise Unavailable(f"no server is running with {str(config.home)!r}; start one with reforward serve")
    about = json.loads(path.read_text())
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{about['address']}/admin/{what}", data=data, method=method)
    request.add_header("Authorization", f"Bearer {about['key']}")
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        reason = json.load(error)["error"]["message"]
        raise (BadInput if error.code < 500 else Unavailable)(reason) from None
    except (urllib.error.URLError, OSError) as error:
        raise Unavailable(f"the server of {str(path)!r} does not answer ({error}); start it again") from None
