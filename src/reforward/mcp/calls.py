"""What every surface of the door offers, said once: arguments in, plain JSON values out, without blocking the event loop."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import anyio
import msgspec
from anyio.to_thread import run_sync

from reforward.app.agents import lookup
from reforward.app.agents.desk import Desk, State
from reforward.domain.job import Kind
from reforward.domain.record import plain

MOST_WAIT_S = 600.0
MOST_CALLS = 256
"""Guests that may wait at the same time."""


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate, and what is said about it."""

    files: dict[str, str]
    """Path to text."""
    base: str = ""
    """`stock`, `incumbent` or an id: `files` are laid over this candidate's. Empty: they are the whole tree."""
    reason: str = ""
    repeat: int = 0


class Calls:
    """The calls of all guests of one desk, which may still be opening: then they wait for it.

    Raises `ReforwardError` for what cannot be done.
    """

    def __init__(self, coming: "Future[Desk]") -> None:
        self.coming = coming
        self.limiter = anyio.CapacityLimiter(MOST_CALLS)

    async def ask(self, kind: Kind, order: Order, author: str, wait_s: float) -> dict[str, Any]:
        """Ask for a job; its state after at most `wait_s` seconds."""
        return await self._run(lambda desk: _ask(desk, kind, order, author, wait_s))

    async def state(self, job: str, wait_s: float) -> dict[str, Any]:
        """Where a job stands, after at most `wait_s` seconds."""
        return await self._run(lambda desk: desk.state(job, wait_s=min(wait_s, MOST_WAIT_S)))

    async def status(self, author: str) -> dict[str, Any]:
        """Where the run stands."""
        return await self._run(lambda desk: lookup.status(desk, author))

    async def history(self, limit: int, author: str) -> dict[str, Any]:
        """What was tried."""
        return await self._run(lambda desk: {"tried": lookup.history(desk, author, limit)})

    async def difference(self, a: str, b: str, author: str) -> dict[str, Any]:
        """A unified diff."""
        return await self._run(lambda desk: {"diff": lookup.difference(desk, a, b, author)})

    async def source(self, of: str, path: str, first: int, count: int, author: str) -> dict[str, Any]:
        """Lines of a file."""
        return await self._run(lambda desk: lookup.source(desk, of, path, first, count, author))

    async def brief(self, author: str, door: str = "") -> str:
        """The brief, as Markdown."""
        return await self._run(lambda desk: lookup.brief(desk, author, door))

    async def _run(self, call: Callable[[Desk], Any]) -> Any:
        made = await run_sync(lambda: call(self.coming.result()), limiter=self.limiter, abandon_on_cancel=True)
        return plain(made)


def _ask(desk: Desk, kind: Kind, order: Order, author: str, wait_s: float) -> State:
    tree = lookup.wanted_tree(desk, kind, order.files, order.base, author)
    state = desk.ask(kind, tree, author=author, reason=order.reason, repeat=order.repeat)
    return desk.state(state.id, wait_s=min(wait_s, MOST_WAIT_S))
