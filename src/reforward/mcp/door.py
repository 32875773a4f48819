"""An open door: one HTTP server on localhost in a thread, or one MCP client on stdin and stdout."""

import socket
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from reforward.app.agents.desk import Desk
from reforward.domain.errors import Unavailable
from reforward.mcp.calls import Calls
from reforward.mcp.guests import Guests, Keyed
from reforward.mcp.routes import failed, make_routes
from reforward.mcp.tools import make_server

HOST = "127.0.0.1"
START_S = 30.0
STRANGER = "mcp client"


def make_app(coming: "Future[Desk]", guests: Guests) -> Starlette:
    """JSON below `/KEY/`, and MCP over streamable HTTP at `/KEY/mcp`."""
    calls = Calls(coming)
    server = make_server(
        calls, lambda context: guests.author(_key(context)), lambda context: guests.address(_key(context))
    )
    app = server.streamable_http_app(streamable_http_path="/{key}/mcp")
    app.router.routes.extend(make_routes(calls, guests))
    app.add_exception_handler(HTTPException, failed)
    app.add_middleware(Keyed, guests=guests)
    return app


def _key(context: Context[Any, Any]) -> str:
    request = context.request_context.request
    assert request is not None, "HTTP requests come with a request"
    return str(request.path_params["key"])


@contextmanager
def open_door(coming: "Future[Desk]", port: int = 0) -> Generator[Guests]:
    """Serve HTTP on localhost while the block runs; port 0 is any free one. Calls wait until the desk is there."""
    guests = Guests()
    listener = _listen(port)
    guests.root = f"http://{HOST}:{listener.getsockname()[1]}"
    config = uvicorn.Config(make_app(coming, guests), log_level="error", access_log=False, timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="door", daemon=True)
    thread.start()
    try:
        _wait(server, thread)
        yield guests
    finally:
        server.should_exit = True
        thread.join(timeout=START_S)
        listener.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise Unavailable(f"port {port} of {HOST} cannot be used: {error.strerror}; choose another one") from None
    return listener


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    """Until the server answers."""
    until = time.monotonic() + START_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > until:
            raise Unavailable(f"the HTTP server did not start within {START_S:.0f} s")
        thread.join(timeout=0.02)


@contextmanager
def open_stdio(coming: "Future[Desk]") -> Generator[None]:
    """Serve one MCP client on stdin and stdout, from before the desk is open until the client goes away.

    When it goes, the desk is closed; when the block ends first, it may still read results.
    """
    server = make_server(Calls(coming), _named, lambda context: "")

    def serve() -> None:
        try:
            anyio.run(server.run_stdio_async)
        finally:
            coming.add_done_callback(_close)

    thread = threading.Thread(target=serve, name="stdio")
    thread.start()
    yield
    thread.join()


def _close(opened: "Future[Desk]") -> None:
    if opened.exception() is None:
        opened.result().close()


def _named(context: Context[Any, Any]) -> str:
    """What the client calls itself."""
    told = context.request_context.session.client_params
    return told.client_info.name if told else STRANGER
