"""What each agent came to: an attempt with its end, and the verdicts on what it proposed."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from reforward.app.read import open_ledger
from reforward.domain.attempt import Attempt, Ended, Spent
from reforward.domain.candidate import Proposal
from reforward.domain.ports import Ledger
from reforward.domain.run import Turn
from reforward.domain.verdict import Verdict
from reforward.ledger.views import every, only


@dataclass(frozen=True, kw_only=True)
class Tally:
    """One attempt."""

    attempt: str
    run: str
    author: str
    agent: str
    started_at: str
    how: str
    """How it ended; `cut off` if nobody wrote that down."""
    seconds: float | None
    calls: int
    tokens_in: int
    tokens_out: int
    usd: float | None
    """What it cost; None if nobody knows."""
    usd_per_percent: float | None
    """What each per cent of its accepted gains, added up, has cost; None without either."""
    ruled: int
    """Candidates of this author in this run that have a verdict."""
    accepted: int
    best_gain: float | None
    """Largest gain of an accepted one over the incumbent of its turn."""


def tallies(limit: int) -> tuple[Tally, ...]:
    """The newest `limit` attempts, oldest first."""
    ledger = open_ledger()
    proposed: dict[tuple[str, str], set[str]] = {}
    for proposal in every(ledger, Proposal):
        proposed.setdefault((proposal.run, proposal.author), set()).add(proposal.id)
    turns = every(ledger, Turn)
    costs = {spent.attempt: spent.usd for spent in every(ledger, Spent)}
    ends = {ended.attempt: ended for ended in every(ledger, Ended)}
    attempts = every(ledger, Attempt)[-limit:] if limit > 0 else []
    return tuple(
        _tally(
            attempt,
            ends.get(attempt.id),
            costs.get(attempt.id),
            _verdicts(ledger, turns, proposed.get((attempt.run, attempt.author), set())),
        )
        for attempt in attempts
    )


def _tally(attempt: Attempt, ended: Ended | None, usd: float | None, verdicts: Sequence[Verdict]) -> Tally:
    won = [v for v in verdicts if v.admits]
    gains = [verdict.gain.mid for verdict in won if verdict.gain]
    return Tally(
        attempt=attempt.id,
        run=attempt.run,
        author=attempt.author,
        agent=attempt.agent,
        started_at=attempt.started_at,
        how=ended.how if ended else "cut off",
        seconds=ended.seconds if ended else None,
        calls=ended.calls if ended else 0,
        tokens_in=ended.tokens_in if ended else 0,
        tokens_out=ended.tokens_out if ended else 0,
        usd=usd,
        usd_per_percent=usd / (100 * sum(gains)) if usd is not None and gains else None,
        ruled=len({verdict.candidate for verdict in verdicts}),
        accepted=len({verdict.candidate for verdict in won}),
        best_gain=max(gains, default=None),
    )


def _verdicts(ledger: Ledger, turns: Sequence[Turn], own: Container[str]) -> list[Verdict]:
    """On what an author proposed first in a run; attempts of one name in one run share them."""
    return [only(ledger.get(turn.verdict), Verdict) for turn in turns if turn.proposal in own]
