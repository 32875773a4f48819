"""A server on localhost that speaks the protocols of models from a script: streams, calls tools, fails in all the usual ways.

Three protocols, told apart by path: OpenAI's chat (https://platform.openai.com/docs/api-reference/chat/streaming), OpenAI's
responses (https://platform.openai.com/docs/api-reference/responses-streaming), Anthropic's messages
(https://docs.anthropic.com/en/api/messages-streaming).
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = Callable[["Handler"], None]
Event = tuple[str, dict[str, Any]]
TOKENS_IN, TOKENS_OUT = 100, 10


class Handler(BaseHTTPRequestHandler):
    """One request with tools, one step of the script; the last step is repeated. Without tools (a title, a summary): words."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.streams = body.get("stream", False)
        self.kind = self.path.split("?")[0].rsplit("/", 1)[-1]
        key = self.headers.get("x-api-key") or self.headers.get("authorization") or ""
        if not body.get("tools"):
            say("a title")(self)
            return
        with self.server.lock:
            self.server.asked.append((self.path, key, body))
            steps = self.server.script
            step = steps.pop(0) if len(steps) > 1 else steps[0]
        step(self)

    def do_GET(self) -> None:
        self.answer(404, "application/json", b'{"error": {"message": "nothing here"}}')

    do_HEAD = do_GET

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def words(self, pieces: Sequence[str], *, whole: bool = True) -> None:
        made = {"completions": chat_words, "messages": message_words, "responses": response_words}[self.kind](pieces)
        self._send(made, whole)

    def call(self, tool: str, pieces: Sequence[str]) -> None:
        made = {"completions": chat_call, "messages": message_call, "responses": response_call}[self.kind]
        self._send(made(tool, f"call_{time.monotonic_ns()}", pieces), whole=True)

    def _send(self, events: Sequence[Event], whole: bool) -> None:
        if not self.streams:
            assert self.kind == "completions", "only chat is asked without a stream"
            self.answer(200, "application/json", json.dumps(at_once(events)).encode())
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events if whole else events[: max(1, len(events) - 3)]:
            head = f"event: {name}\n" if name else ""
            self.wfile.write(f"{head}data: {json.dumps(data)}\n\n".encode())
            self.wfile.flush()
        if whole and self.kind == "completions":
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


# --- OpenAI's chat ---


def _chunk(choice: dict[str, Any], **more: Any) -> Event:
    return "", {
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more,
    }  # fmt: skip


def _chat(deltas: Sequence[dict[str, Any]], reason: str) -> list[Event]:
    usage = {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT}
    chunks = [_chunk({"index": 0, "delta": delta, "finish_reason": None}) for delta in deltas]
    return [*chunks, _chunk({"index": 0, "delta": {}, "finish_reason": reason}, usage=usage)]


def chat_words(pieces: Sequence[str]) -> list[Event]:
    return _chat([{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces), {}], "stop")


def chat_call(tool: str, call: str, pieces: Sequence[str]) -> list[Event]:
    first = {"index": 0, "id": call, "type": "function", "function": {"name": tool, "arguments": pieces[0]}}
    rest = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces[1:]]
    return _chat([{"role": "assistant", "tool_calls": [first]}, *rest], "tool_calls")


def at_once(events: Sequence[Event]) -> dict[str, Any]:
    """The same answer for who does not stream."""
    choices = [data["choices"][0] for _, data in events]
    deltas = [choice["delta"] for choice in choices]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(d.get("content") or "" for d in deltas)}
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    if calls:
        text = "".join(call["function"]["arguments"] for call in calls)
        message["tool_calls"] = [calls[0] | {"function": calls[0]["function"] | {"arguments": text}}]
    choice = {"index": 0, "message": message, "finish_reason": choices[-1]["finish_reason"]}
    usage = events[-1][1]["usage"]
    return {
        "id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage,
    }  # fmt: skip


# --- Anthropic's messages ---


def _message(block: dict[str, Any], deltas: Sequence[dict[str, Any]], reason: str) -> list[Event]:
    begun = {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": TOKENS_IN, "output_tokens": 1},
    }  # fmt: skip
    told = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": TOKENS_OUT},
        },
        {"type": "message_stop"},
    ]  # fmt: skip
    return [(data["type"], data) for data in told]


def message_words(pieces: Sequence[str]) -> list[Event]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return _message({"type": "text", "text": ""}, deltas, "end_turn")


def message_call(tool: str, call: str, pieces: Sequence[str]) -> list[Event]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return _message({"type": "tool_use", "id": call, "name": tool, "input": {}}, deltas, "tool_use")


# --- OpenAI's responses ---


def _response(item: dict[str, Any]) -> list[Event]:
    usage = {
        "input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    told = [
        {"type": "response.created", "response": {"id": "r", "object": "response", "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {"id": "r", "object": "response", "status": "completed", "output": [item], "usage": usage},
        },
    ]
    return [(data["type"], data) for data in told]


def response_words(pieces: Sequence[str]) -> list[Event]:
    content = [{"type": "output_text", "text": "".join(pieces), "annotations": []}]
    return _response({"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": content})


def response_call(tool: str, call: str, pieces: Sequence[str]) -> list[Event]:
    space, _, name = tool.rpartition(".")
    item = {"type": "function_call", "id": "i", "call_id": call, "name": name, "arguments": "".join(pieces)}
    return _response(item | ({"namespace": space} if space else {}))


# --- steps of a script ---


def _halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def say(text: str) -> Step:
    """Words, in two pieces; the work is done."""
    return lambda to: to.words(_halves(text))


def use(tool: str, **arguments: Any) -> Step:
    """A call of a tool, its arguments streamed in two pieces."""
    return use_raw(tool, json.dumps(arguments))


def use_raw(tool: str, text: str) -> Step:
    """A call of a tool with arguments that may be no JSON."""
    return lambda to: to.call(tool, _halves(text))


def fail(status: int, message: str, code: str = "error") -> Step:
    """An error in the form that both vendors share: a message and a type, and OpenAI's code."""
    body = json.dumps({"type": "error", "error": {"message": message, "type": code, "code": code}}).encode()
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
        to.words(["I was", " about to"], whole=False)
        to.wfile.write(b'data: {"id": ')

    return step


@contextmanager
def scripted_server(*script: Step) -> Iterator[tuple[str, list[tuple[str, str, dict[str, Any]]]]]:
    """Yields the address, without a path, and what was asked: (path, key, body)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.script, server.asked, server.lock = list(script), [], threading.Lock()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked
    finally:
        server.shutdown()
        server.server_close()
