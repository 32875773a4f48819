"""HTTP connections that say nothing are closed: a client that trickles its headers holds a socket, and not for long."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 30.0
"""In which the first request of a connection must have come."""


class Hurried(H11Protocol):
    """uvicorn's protocol with a deadline for the first headers; between requests it has one of its own."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._late = asyncio.get_running_loop().call_later(HEADERS_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._late.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if getattr(self, "cycle", None) is None and not self.transport.is_closing():
            self.transport.close()
