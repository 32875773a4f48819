"""Agents that drive a run: each is let in through the door, works in a thread of its own, and leaves a record of how it ended."""

import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from reforward.app.agents import lookup
from reforward.app.agents.desk import Desk
from reforward.app.agents.purse import Purse
from reforward.app.budget import Budget
from reforward.app.events import AgentNews, Emit
from reforward.app.house import House
from reforward.app.journal import Journal
from reforward.app.optimize import Driven, Search
from reforward.domain.attempt import Attempt, Ended, Spent
from reforward.domain.errors import BadInput
from reforward.domain.record import short
from reforward.ledger.blobs import Blobs
from reforward.propose.brief import Style, playbook
from reforward.propose.guest import Agent, Guest, Left


class Invites(Protocol):
    """An open door."""

    def invite(self, author: str) -> str:
        """An address for this author alone."""
        ...


OpenDoor = Callable[["Future[Desk]"], AbstractContextManager[Invites]]


@dataclass(frozen=True, kw_only=True)
class Team:
    """Agents, how they get in, how they work together, and what must never be written down."""

    agents: Sequence[Agent]
    door: OpenDoor
    secrets: Sequence[str]
    """Values of keys and tokens; they are taken out of transcripts."""
    parallel: int | None = None
    """Seats. With more of them than agents, agents sit down again from the first on; with fewer, the last ones wait.
    None: one for each agent."""
    share: bool = False
    """Agents see what others tried, and work against the best of all."""
    style: Style = "naive"
    most_usd: float = math.inf
    """What all of them together may cost."""

    def __post_init__(self) -> None:
        silent = next((agent.spec for agent in self.agents if not agent.counts_cost), None)
        if silent and self.most_usd < math.inf:
            raise BadInput(
                f"--max-cost cannot be kept: what {silent} costs is not known here (programs count for themselves, and only "
                "models with a list price have one); limit it with --budget, or by an option of its own"
            )

    def search(self) -> Search:
        """A search that these agents do, as many at the same time as there are seats."""
        style = () if self.style == "naive" else (f"brief:{self.style}",)
        return Search(proposers=(*sorted(agent.spec for agent in self.seated()), *style), drive=self.drive)

    def seated(self) -> list[Agent]:
        """Everybody who will work, in turn."""
        return [self.agents[at % len(self.agents)] for at in range(max(len(self.agents), self.parallel or 0))]

    def drive(self, house: House, journal: Journal, budget: Budget, emit: Emit) -> Driven:
        """Until the budget ends, or all agents are done and what they submitted is ruled on."""
        desk = Desk(house, journal, replace(budget, screening_share=1.0), emit, share=self.share)
        coming: Future[Desk] = Future()
        coming.set_result(desk)
        purse, everybody = Purse(self.most_usd), self.seated()
        seats = ThreadPoolExecutor(max_workers=self.parallel or len(everybody), thread_name_prefix="agent")
        with self.door(coming) as door:
            names = distinct([agent.name for agent in everybody])
            attempts = [
                seats.submit(self._attempt, desk, purse, agent, name, door.invite(name))
                for agent, name in zip(everybody, names, strict=True)
            ]
            threading.Thread(target=_finish_after, args=(seats, desk), daemon=True).start()
            try:
                desk.work()
            finally:
                desk.close()
                seats.shutdown(cancel_futures=True)
        for attempt in attempts:
            if not attempt.cancelled():
                attempt.result()  # an error of ours
        return Driven(screening_s=desk.cycle.screening_s, engine=desk.utilisation())

    def _attempt(self, desk: Desk, purse: Purse, agent: Agent, name: str, door: str) -> None:
        """Let one agent work, and write down how it ended."""
        blobs, ledger, begun = Blobs(desk.house.config.blobs), desk.house.ledger, time.monotonic()
        brief = lookup.brief(desk, name, door, playbook(self.style, desk.house.engine.target))
        attempt = Attempt(
            run=desk.journal.run.id,
            author=name,
            agent=agent.spec,
            brief=blobs.put(self._clean(brief.replace(door, "DOOR").encode())),
            started_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        )
        ledger.append(attempt)
        desk.emit(AgentNews(author=name, what=f"begins: {agent.spec}"))
        guest = Guest(
            author=name,
            door=door,
            brief=brief,
            tree=desk.incumbent(name),
            folder=worktree(desk.house.config.home, attempt),
            over=lambda: _over(desk, purse),
            spend=lambda usd: purse.spend(name, usd),
        )
        left = _worked(agent, guest)
        ended = Ended(
            attempt=attempt.id,
            how=self._clean(left.how.encode()).decode(),
            seconds=time.monotonic() - begun,
            transcript=blobs.put(self._clean(left.transcript.replace(door.encode(), b"DOOR"))),
            calls=left.calls,
            tokens_in=left.tokens_in,
            tokens_out=left.tokens_out,
        )
        ledger.append(ended, *([] if left.usd is None else [Spent(attempt=attempt.id, usd=left.usd)]))
        desk.emit(AgentNews(author=name, what=f"ends after {ended.seconds:.0f} s: {ended.how}"))

    def _clean(self, text: bytes) -> bytes:
        for secret in self.secrets:
            text = text.replace(secret.encode(), b"[key]")
        return text


def _worked(agent: Agent, guest: Guest) -> Left:
    """Agents are built on libraries of others: whatever one raises ends its attempt, not the run."""
    try:
        return agent.work(guest)
    except Exception as error:  # noqa: BLE001 - boundary to code that is not ours: becomes a record
        return Left(how=f"failed: {type(error).__name__}: {error}", transcript=traceback.format_exc().encode())


def _over(desk: Desk, purse: Purse) -> str:
    if desk.closed or desk.over:
        return "the run has ended"
    return f"{purse.most_usd:g} US dollars are spent" if purse.empty else ""


def worktree(home: Path, attempt: Attempt) -> Path:
    """A new folder for one attempt; it is kept."""
    folder = home / "agents" / short(attempt.id)
    folder.mkdir(parents=True)
    return folder


def distinct(names: Sequence[str]) -> list[str]:
    """`a`, `a-2`, `b`: authors that can be told apart."""
    return [
        name if names[:at].count(name) == 0 else f"{name}-{names[:at].count(name) + 1}" for at, name in enumerate(names)
    ]


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of variables that are named like keys, tokens, secrets and passwords, if they are long enough to be one."""
    named = ("KEY", "TOKEN", "SECRET", "PASSWORD")
    found = {value for name, value in environment.items() if name.upper().endswith(named) and len(value) >= 8}
    return tuple(sorted(found, key=len, reverse=True))


def _finish_after(seats: ThreadPoolExecutor, desk: Desk) -> None:
    seats.shutdown()
    desk.finish()
