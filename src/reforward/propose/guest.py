"""What an agent gets, what it leaves, and how it is spoken to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reforward.domain.candidate import Candidate

MOST_TRANSCRIPT = 8 << 20
"""Bytes of a transcript that are kept, from its beginning."""


@dataclass(frozen=True, kw_only=True)
class Guest:
    """One agent's place in a run."""

    author: str
    door: str
    """Its own address."""
    brief: str
    tree: Candidate
    """Source that it may start from."""
    folder: Path
    """Empty, its own, and kept after the run."""
    over: Callable[[], str]
    """Why it must stop now, in words; empty while it may go on."""
    spend: Callable[[float], None]
    """Told what it has cost so far, in US dollars, by whoever counts that."""


@dataclass(frozen=True, kw_only=True)
class Left:
    """How an agent's work ended, and what there is to keep."""

    how: str
    transcript: bytes
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None
    """What it cost, if that is known."""


class Agent(Protocol):
    """Works until it is done or must stop; whatever goes wrong is told in `Left.how`."""

    name: str
    """Short, for its proposals."""
    spec: str
    """As it was asked for."""
    counts_cost: bool
    """It tells what it costs while it works."""

    def work(self, guest: Guest) -> Left:
        """Called in a thread of its own."""
        ...


def fill(guest: Guest) -> None:
    """Write what the folder holds: `brief.md`, `source/` to start from, and `notes/`."""
    (guest.folder / "notes").mkdir(parents=True)
    (guest.folder / "brief.md").write_text(guest.brief, encoding="utf-8")
    for file in guest.tree.files:
        path = guest.folder / "source" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
