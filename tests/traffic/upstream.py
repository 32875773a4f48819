"""A server that speaks OpenAI's protocol and misbehaves on demand: what proxies and replays are tried against."""

import asyncio
import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from typing import Any

from aiohttp import web

ODD = b'data: {"choices":[{"text":"\xc3\xa4\\ud83d"}]}\n\n: a comment\n\n'
"""Bytes that a proxy which parses and writes again would change."""


class Upstream:
    """Words count as tokens. `seen` is what arrived, `gone` how many clients left before the end."""

    def __init__(
        self, *, pause_s: float = 0.0, counts: bool = True, strict: bool = False, chat_only: bool = False
    ) -> None:
        self.pause_s, self.counts, self.strict, self.chat_only = pause_s, counts, strict, chat_only
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.gone = self.pieces = 0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        self.seen.append((request.raw_path, dict(request.headers), body))
        if request.path.endswith("/models"):
            return _json({"data": [{"id": "tiny"}]})
        if request.path == "/echo":
            return web.Response(body=body, status=418, reason="Odd", headers={"X-Odd": "yes", "Content-Type": "x/y"})
        if (
            not request.path.startswith("/v1")
            or not request.path.endswith("completions")
            or (self.chat_only and "chat" not in request.path)
        ):
            return _json({"error": {"message": "no such path"}}, status=404)
        try:
            asked = json.loads(body)
        except ValueError:
            return _json({"error": {"message": "no JSON"}}, status=400)
        if self.strict and "ignore_eos" in asked:
            return _json({"error": {"message": "unknown argument ignore_eos"}}, status=400)
        return await (self._stream if asked.get("stream") else self._whole)(request, asked)

    def _usage(self, asked: dict[str, Any], produced: int) -> dict[str, Any]:
        text = asked.get("prompt") or " ".join(message["content"] for message in asked.get("messages", ()))
        return {"prompt_tokens": 3 + len(text.split()), "completion_tokens": produced} if self.counts else {}

    async def _whole(self, request: web.BaseRequest, asked: dict[str, Any]) -> web.StreamResponse:
        count = asked.get("max_tokens", 4)
        told = {"choices": [{"text": "w " * count, "finish_reason": "length"}], "usage": self._usage(asked, count)}
        packed = gzip.compress(json.dumps(told).encode())
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return _json(told)
        return web.Response(body=packed, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    async def _stream(self, request: web.BaseRequest, asked: dict[str, Any]) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        count, chat = asked.get("max_tokens", 4), "messages" in asked
        try:
            for number in range(count):
                await asyncio.sleep(self.pause_s)
                if asked.get("user") == "break" and number == 2:
                    request.transport.abort()  # type: ignore[union-attr]
                    return answer
                said: dict[str, Any] = {"delta": {"content": "w "}} if chat else {"text": "w "}
                said["finish_reason"] = "length" if number == count - 1 else None
                self.pieces += 1
                await answer.write(b"data: " + json.dumps({"choices": [said]}).encode() + b"\n\n")
            if asked.get("user") == "odd":
                await answer.write(ODD)
            if asked.get("stream_options", {}).get("include_usage") and self.counts:
                usage = json.dumps({"choices": [], "usage": self._usage(asked, count)}).encode()
                await answer.write(b"data: " + usage + b"\n\n")
            await answer.write(b"data: [DONE]\n\n")
        except (ConnectionResetError, asyncio.CancelledError):
            self.gone += 1
            raise
        await answer.write_eof()
        return answer


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(value), status=status, content_type="application/json")


@contextlib.contextmanager
def serving(upstream: Upstream) -> Iterator[str]:
    """Its root address, while a thread of its own serves it."""
    started = threading.Event()
    place: dict[str, Any] = {}

    async def run() -> None:
        server = web.Server(upstream.handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        place["port"], place["stop"], place["loop"] = (
            runner.addresses[0][1],
            asyncio.Event(),
            asyncio.get_running_loop(),
        )
        started.set()
        await place["stop"].wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    started.wait(10)
    try:
        yield f"http://127.0.0.1:{place['port']}"
    finally:
        place["loop"].call_soon_threadsafe(place["stop"].set)
        thread.join(10)
