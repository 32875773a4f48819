"""Agents that drive a run: each is let in through the door, works in a thread of its own, and leaves a record of how it ended."""

import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from reforward.app import lookup
from reforward.app.budget import Budget
from reforward.app.desk import Desk
from reforward.app.events import AgentNews, Emit
from reforward.app.house import House
from reforward.app.journal import Journal
from reforward.app.optimize import Search
from reforward.domain.attempt import Attempt, Ended
from reforward.domain.record import short
from reforward.ledger.blobs import Blobs
from reforward.propose.guest import Agent, Guest, Left


class Invites(Protocol):
    """An open door."""

    def invite(self, author: str) -> str:
        """An address for this author alone."""
        ...


OpenDoor = Callable[["Future[Desk]"], AbstractContextManager[Invites]]


@dataclass(frozen=True, kw_only=True)
class Team:
    """Agents, how they get in, and what must never be written down."""

    agents: Sequence[Agent]
    door: OpenDoor
    secrets: Sequence[str]
    """Values of keys and tokens; they are taken out of transcripts."""

    def search(self) -> Search:
        """A search that these agents do, all at the same time."""
        return Search(proposers=tuple(sorted(agent.spec for agent in self.agents)), drive=self.drive)

    def drive(self, house: House, journal: Journal, budget: Budget, emit: Emit) -> float:
        """Until the budget ends, or all agents are done and what they submitted is ruled on."""
        desk = Desk(house, journal, replace(budget, screening_share=1.0), emit)
        coming: Future[Desk] = Future()
        coming.set_result(desk)
        with self.door(coming) as door:
            names = distinct([agent.name for agent in self.agents])
            threads = [
                threading.Thread(target=self._attempt, args=(desk, agent, name, door.invite(name)), name=name)
                for agent, name in zip(self.agents, names, strict=True)
            ]
            for thread in threads:
                thread.start()
            threading.Thread(target=_finish_after, args=(threads, desk), daemon=True).start()
            try:
                desk.work()
            finally:
                desk.close()
                for thread in threads:
                    thread.join()
        emit(AgentNews(author="engine", what=utilisation(desk)))
        return desk.cycle.screening_s

    def _attempt(self, desk: Desk, agent: Agent, name: str, door: str) -> None:
        """Let one agent work, and write down how it ended."""
        blobs, ledger, begun = Blobs(desk.house.config.blobs), desk.house.ledger, time.monotonic()
        brief = lookup.brief(desk, door)
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
            tree=desk.journal.incumbent,
            folder=worktree(desk.house.config.home, attempt),
            over=lambda: "the run has ended" if desk.closed or desk.over else "",
            spend=lambda usd: None,
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
        ledger.append(ended)
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


def utilisation(desk: Desk) -> str:
    """How much of the time since the desk was opened the engine worked, and for whom."""
    elapsed = desk.cycle.elapsed_s
    shares = ", ".join(f"{share.author} {share.seconds:.0f} s" for share in desk.shares())
    return f"was busy {desk.busy_s / elapsed:.0%} of {elapsed:.0f} s: {shares or 'for nobody'}"


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


def _finish_after(threads: Sequence[threading.Thread], desk: Desk) -> None:
    for thread in threads:
        thread.join()
    desk.finish()
