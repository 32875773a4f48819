"""A transparent proxy: what a client sends reaches the server, what the server answers reaches the client, byte for byte."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from reforward.domain.errors import BadInput, Unavailable
from reforward.traffic.exchange import GONE, RECORDED, Exchange, Reader
from reforward.traffic.tap import Tap

MOST_BODY = 32 << 20
"""Bytes of a request that are held back to be recorded; what is larger streams through and leaves no prompt."""
_NOT_MINE = (
    "connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade expect host"
)
NOT_MINE = frozenset(_NOT_MINE.split())
"""Headers that belong to one connection (RFC 9110, 7.6.1), and the host, which differs."""
OPT_OUT = "x-no-capture"
"""A request with this header is passed on and not recorded."""
IDLE_S = 4.0
"""Connections to the server are kept so long: less than the five seconds after which uvicorn closes them."""
DRAIN_S = 60.0
"""Answers that are under way when the proxy is told to stop may go on so long."""
LONGEST_LINE = 64 << 10


class Proxy:
    """Passes on every request; calls go to the tap when their answer has ended. Needs to be opened in the running loop."""

    def __init__(self, upstream: str, tap: Tap, *, contents: bool = False) -> None:
        self._base, self._tap, self._contents = address(upstream), tap, contents
        self._reader = Reader()
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Nothing is sent yet."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
        )

    async def close(self) -> None:
        """Drop the connections to the server."""
        if self._session:
            await self._session.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        exchange = Exchange(path=request.path, arrived_s=time.monotonic(), whole=[] if self._contents else None)
        recorded = request.method == "POST" and request.path.endswith(RECORDED) and OPT_OUT not in request.headers
        try:
            body = await _body(request)
            exchange.body = body if isinstance(body, bytes) else b""
            return await self._pass_on(request, body, exchange)
        except (ConnectionResetError, asyncio.CancelledError):
            exchange.status = GONE
            raise
        finally:
            exchange.ended_s = time.monotonic()
            if recorded:
                size = len(exchange.body) + len(exchange.tail)
                self._tap.offer(lambda: self._reader.call(exchange), size + sum(map(len, exchange.whole or ())))

    async def _pass_on(
        self, request: web.BaseRequest, body: bytes | AsyncIterator[bytes], exchange: Exchange
    ) -> web.StreamResponse:
        assert self._session is not None, "open() comes first"
        url = URL(self._base + request.raw_path, encoded=True)
        sent = self._session.request(
            request.method, url, headers=_ours(request.headers), data=body or None, allow_redirects=False
        )
        try:
            answer = await sent
        except (aiohttp.ClientError, TimeoutError) as error:
            exchange.status = 502
            return _unreachable(error)
        async with answer:
            return await _return(request, answer, exchange)


async def _return(request: web.BaseRequest, answer: aiohttp.ClientResponse, exchange: Exchange) -> web.StreamResponse:
    """The answer as it comes. One that breaks off is broken off: its client must not take it for whole."""
    exchange.status, exchange.encoding = answer.status, answer.headers.get("Content-Encoding", "")
    exchange.streamed = answer.headers.get("Content-Type", "").startswith("text/event-stream")
    passed = web.StreamResponse(status=answer.status, reason=answer.reason, headers=_ours(answer.headers))
    if answer.content_length is None and request.method != "HEAD" and answer.status not in (204, 304):
        passed.enable_chunked_encoding()
    await passed.prepare(request)
    while chunk := await _next(answer):
        exchange.hear(chunk, time.monotonic())
        await passed.write(chunk)
    if chunk is None:
        exchange.status = 502
        if request.transport:
            request.transport.abort()
        return passed
    await passed.write_eof()
    return passed


async def _next(answer: aiohttp.ClientResponse) -> bytes | None:
    """What has come; empty at the end, None if the server broke off."""
    try:
        return await answer.content.readany()
    except (aiohttp.ClientError, OSError):
        return None


async def _body(request: web.BaseRequest) -> bytes | AsyncIterator[bytes]:
    """All of it, or a stream if it is too large to hold."""
    held = bytearray()
    async for chunk in request.content.iter_any():
        held += chunk
        if len(held) > MOST_BODY:
            return _stream(bytes(held), request)
    return bytes(held)


async def _stream(held: bytes, request: web.BaseRequest) -> AsyncIterator[bytes]:
    yield held
    async for chunk in request.content.iter_any():
        yield chunk


def _ours(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Without what belongs to one connection."""
    kept = CIMultiDict[str](headers)
    named = [name.strip().lower() for value in kept.getall("Connection", []) for name in value.split(",")]
    for name in {*NOT_MINE, *named}:
        kept.popall(name, None)
    return kept


def _unreachable(error: Exception) -> web.Response:
    """What OpenAI's clients understand."""
    told = {"message": f"the server behind this proxy cannot be reached: {error}", "type": "server_error", "code": None}
    return web.Response(status=502, text=json.dumps({"error": told}), content_type="application/json")


def address(upstream: str) -> str:
    """The server's root: clients' paths, which begin with /v1, are appended to it."""
    url = URL(upstream)
    if url.scheme not in ("http", "https") or not url.host or url.query_string:
        raise BadInput(f"--upstream {upstream!r} is no address; it looks like http://127.0.0.1:8000")
    return str(url).rstrip("/").removesuffix("/v1")


async def serve(proxy: Proxy, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Until SIGINT or SIGTERM; then answers under way are let end. `ready` hears the port."""
    await proxy.open()
    server = web.Server(
        proxy.handle,
        handler_cancellation=True,
        access_log=None,
        auto_decompress=False,
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
    )
    runner = web.ServerRunner(server, shutdown_timeout=DRAIN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror}; pass another --port") from None
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    ready(int(runner.addresses[0][1]))
    try:
        await stop.wait()
    finally:
        await runner.cleanup()
        await proxy.close()
