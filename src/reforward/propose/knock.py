"""One call through a door, with the standard library alone."""

import json
import urllib.error
import urllib.request
from typing import Any

from reforward.domain.errors import BadInput, ReforwardError, Unavailable
from reforward.domain.job import Kind

PATHS: dict[Kind, str] = {"measure": "measurements", "submit": "submissions", "profile": "profiles"}
"""Where each kind of job is asked for, below the door's address."""
ANSWER_S = 60.0
"""Longest wait that is asked for in one call; the door answers by then."""


def knock(url: str, body: object = None) -> dict[str, Any]:
    """`GET`, or `POST` of a body as JSON. Raises `BadInput` or `Unavailable` with the door's own words."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=2 * ANSWER_S) as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        raise _told(error.code, error.read().decode(errors="replace")) from None
    except (OSError, ValueError) as error:
        raise Unavailable(f"the door does not answer ({error}); is the run still open?") from None


def finished(door: str, state: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a job, however long it takes; a run that ends first leaves it open, with `error` saying so."""
    while state["state"] in ("queued", "running") and not state["error"]:
        state = knock(f"{door}/jobs/{state['id']}?wait={ANSWER_S:g}")
    return state


def _told(code: int, text: str) -> ReforwardError:
    try:
        reason = str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        reason = f"the door answered {code}: {text[:200]}"
    return BadInput(reason) if 400 <= code < 500 else Unavailable(reason)
