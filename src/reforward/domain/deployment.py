"""Which candidate serves which target from when, and how the rollouts of others ended."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from reforward.domain.record import Record
from reforward.domain.verdict import Finding

Cause = Literal[
    "started",  # the server began with it
    "promoted",  # its canary did as well as the control
    "forced",  # put into service without a canary
    "rolled-back",  # somebody, or a rollout, went back to it
    "crashed",  # what served before died; the stock forward took over
]
Outcome = Literal["promoted", "rolled-back", "inconclusive"]
ANY_LENGTH = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Validity:
    """Where a candidate was judged; outside it, requests go to the stock forward."""

    length: int = ANY_LENGTH
    """Positions of one request, prompt and output."""
    batch: int = ANY_LENGTH
    """Requests in flight."""
    dtype: str = ""
    """Type of the weights; empty for whatever the subject has."""


@dataclass(frozen=True, kw_only=True)
class Deployment(Record):
    """From `at` on, `candidate` serves. Going back is one more of these."""

    tag: ClassVar[str] = "deployment"

    target: str
    candidate: str
    verdict: str
    """That admitted it; empty for the stock forward, and for what was chosen by hand."""
    validity: Validity
    replaces: str
    """Deployment before; empty if this is the first since the server started."""
    cause: Cause
    detail: str
    seconds: float
    """From the decision to the first call."""
    at: str


@dataclass(frozen=True, kw_only=True)
class Rollout(Record):
    """A candidate that was given part of the requests, beside an equal part for the incumbent, and what came of it."""

    tag: ClassVar[str] = "rollout"

    target: str
    candidate: str
    incumbent: str
    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...]
    requests: int
    """Of the canary that ended, and as many of the control."""
    harmed: int
    """Requests of the canary that had to be begun anew elsewhere; none was lost."""
    seconds: float
    at: str
