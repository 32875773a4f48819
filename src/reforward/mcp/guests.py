"""Who may come in: each guest has an address of its own, whose secret key says who it is.

A key in the path works with every client. It keeps out web pages and other users of the machine, which can reach a port of
localhost but cannot guess the key.
"""

import secrets
import threading

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class Guests:
    """Authors by key."""

    def __init__(self) -> None:
        self.root = ""
        """`http://127.0.0.1:PORT`, once the door is open."""
        self._authors: dict[str, str] = {}
        self._lock = threading.Lock()

    def invite(self, author: str) -> str:
        """A new address for this author."""
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._authors[key] = author
        return self.address(key)

    def author(self, key: str) -> str:
        """Who has this key, which `Keyed` has let in."""
        return self._authors[key]

    def knows(self, key: str) -> bool:
        """Whether anybody has this key."""
        return key in self._authors

    def address(self, key: str) -> str:
        """The address that goes with a key."""
        return f"{self.root}/{key}"


class Keyed:
    """Lets in requests whose path begins with a known key, and nothing else."""

    def __init__(self, app: ASGIApp, guests: Guests) -> None:
        self.app, self.guests = app, guests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self.guests.knows(scope["path"].split("/")[1]):
            reason = "no such door; use the address that `reforward mcp` printed, or REFORWARD_DOOR"
            await JSONResponse({"error": reason}, status_code=404)(scope, receive, send)
            return
        await self.app(scope, receive, send)
