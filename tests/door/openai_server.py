"""A server on localhost that speaks OpenAI's chat protocol from a script: streams, calls tools, fails in all the usual ways.

The protocol: https://platform.openai.com/docs/api-reference/chat/streaming.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """One request, one step of the script; the last step is repeated."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.streams = body.get("stream", False)
        with self.server.lock:
            self.server.asked.append((self.path, self.headers.get("authorization", ""), body))
            steps = self.server.script
            step = steps.pop(0) if len(steps) > 1 else steps[0]
        step(self)

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, deltas: Sequence[dict[str, Any]], reason: str, *, whole: bool = True) -> None:
        if not self.streams:
            self._at_once(deltas, reason)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for delta in deltas:
            self._event({"index": 0, "delta": delta, "finish_reason": None})
        if whole:
            self._event(
                {"index": 0, "delta": {}, "finish_reason": reason}, {"prompt_tokens": 100, "completion_tokens": 10}
            )
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _at_once(self, deltas: Sequence[dict[str, Any]], reason: str) -> None:
        """The same answer for who does not stream."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(d.get("content") or "" for d in deltas)}
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        if calls:
            text = "".join(call["function"]["arguments"] for call in calls)
            message["tool_calls"] = [calls[0] | {"function": calls[0]["function"] | {"arguments": text}}]
        choice = {"index": 0, "message": message, "finish_reason": reason}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        whole = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
        self.answer(200, "application/json", json.dumps(whole).encode())

    def _event(self, choice: dict[str, Any], usage: dict[str, int] | None = None) -> None:
        chunk: dict[str, Any] = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        if usage:
            chunk["usage"] = usage | {"total_tokens": sum(usage.values())}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def say(text: str) -> Step:
    """Words, in two pieces; the work is done."""
    half = len(text) // 2
    return lambda to: to.stream([{"role": "assistant", "content": text[:half]}, {"content": text[half:]}], "stop")


def use(tool: str, **arguments: Any) -> Step:
    """A call of a tool, its arguments streamed in two pieces."""
    return use_raw(tool, json.dumps(arguments))


def use_raw(tool: str, text: str) -> Step:
    """A call of a tool with arguments that may be no JSON."""
    half = len(text) // 2
    first = {
        "index": 0,
        "id": f"call_{time.monotonic_ns()}",
        "type": "function",
        "function": {"name": tool, "arguments": text[:half]},
    }
    deltas = [
        {"role": "assistant", "tool_calls": [first]},
        {"tool_calls": [{"index": 0, "function": {"arguments": text[half:]}}]},
    ]
    return lambda to: to.stream(deltas, "tool_calls")


def fail(status: int, message: str, code: str = "") -> Step:
    """An error as OpenAI tells it."""
    body = json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()
    return lambda to: to.answer(status, "application/json", body)


def html(status: int = 200) -> Step:
    """A page of some proxy."""
    return lambda to: to.answer(status, "text/html", b"<html><body>Sign in to the network</body></html>")


def hang(seconds: float) -> Step:
    """Silence."""
    return lambda to: time.sleep(seconds)


def break_off() -> Step:
    """A stream that ends in the middle of an answer, with its connection."""

    def step(to: Handler) -> None:
        to.stream([{"role": "assistant", "content": "I was about to"}], "stop", whole=False)
        to.wfile.write(b'data: {"id": ')

    return step


@contextmanager
def scripted_server(*script: Step) -> Iterator[tuple[str, list[tuple[str, str, dict[str, Any]]]]]:
    """Yields the base URL and what was asked: (path, authorization, body)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.script, server.asked, server.lock = list(script), [], threading.Lock()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", server.asked
    finally:
        server.shutdown()
        server.server_close()
