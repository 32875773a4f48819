"""One exchange that a proxy passed on, and the call that it was: read from its bytes after the answer has gone."""

import json
import zlib
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from reforward.domain.call import Call
from reforward.domain.workload import Sampling

RECORDED = ("/chat/completions", "/completions")
"""How paths of calls end; everything else is passed on without a record."""
TAIL = 16 << 10
"""Bytes kept of the end of an answer: usage and finish reason stand there."""
LONGEST = 8 << 20
"""Bytes up to which an answer that is one document is kept whole, to be read."""
BYTES_A_TOKEN = 4.0
"""Assumed of prompts until a server has told token counts."""
GONE = 499
"""Status of a call whose client went away."""


@dataclass(kw_only=True)
class Exchange:
    """Bytes and moments. Times in seconds of `time.monotonic()`."""

    path: str
    arrived_s: float
    body: bytes = b""
    """Of the request; empty if it was too large to be kept."""
    status: int = 0
    encoding: str = ""
    streamed: bool = False
    """The answer is a stream of events."""
    first_s: float | None = None
    """When the first bytes of the answer's body came."""
    ended_s: float = 0.0
    events: int = 0
    tail: bytearray = field(default_factory=bytearray)
    whole: list[bytes] | None = None
    """All bytes of the answer, if contents are kept."""

    def hear(self, chunk: bytes, now: float) -> None:
        """A piece of the answer came: some microseconds."""
        if self.first_s is None:
            self.first_s = now
        self.events += chunk.count(b"data: {") + chunk.count(b"data:{")
        self.tail += chunk
        if len(self.tail) > (2 * TAIL if self.streamed else LONGEST):
            del self.tail[:-TAIL]
        if self.whole is not None:
            self.whole.append(chunk)


class Reader:
    """Turns exchanges into calls. Learns how many bytes a token has from servers that tell."""

    def __init__(self) -> None:
        self._bytes, self._tokens = BYTES_A_TOKEN, 1.0

    def call(self, exchange: Exchange) -> Call | None:
        """None if the request was no JSON object; `ValueError` if it was no JSON."""
        asked = _object(exchange.body)
        if asked is None:
            return None
        prompt = prompt_text(asked)
        told = _told(exchange)
        usage = _dict(told.get("usage"))
        counted = _whole(usage.get("prompt_tokens")) if usage else None
        size = len(prompt.encode("utf-8", "replace"))
        if counted and size:
            self._bytes, self._tokens = 0.99 * self._bytes + size, 0.99 * self._tokens + counted
        produced = _whole(usage.get("completion_tokens")) if usage else None
        return Call(
            arrived_s=exchange.arrived_s,
            seconds=exchange.ended_s - exchange.arrived_s,
            ttft_s=exchange.first_s - exchange.arrived_s if exchange.streamed and exchange.first_s else None,
            prompt_tokens=counted or max(1, round(size * self._tokens / self._bytes)),
            output_tokens=_pieces(exchange) if produced is None else produced,
            sampling=sampling(asked),
            status=exchange.status,
            finish=told.get("finish", ""),
            estimated=counted is None or produced is None,
            prompt=prompt,
            answer=b"".join(exchange.whole or ()).decode("utf-8", "replace"),
        )


def _pieces(exchange: Exchange) -> int:
    """About how many tokens a stream had that did not tell: one an event, but for a chat's first and last."""
    around = 2 if exchange.path.endswith(RECORDED[0]) else 0
    return max(0, exchange.events - around)


def _told(exchange: Exchange) -> dict[str, Any]:
    """`usage` and `finish` as the end of the answer says them."""
    told: dict[str, Any] = {}
    for text in _documents(exchange):
        try:
            document = _object(text)
        except ValueError:
            continue
        if document is None:
            continue
        told |= {"usage": document["usage"]} if document.get("usage") else {}
        choices = document.get("choices")
        for choice in cast(list[Any], choices) if isinstance(choices, list) else []:
            reason = _dict(choice).get("finish_reason")
            told |= {"finish": reason} if isinstance(reason, str) else {}
    return told


def _documents(exchange: Exchange) -> list[bytes]:
    data = bytes(exchange.tail)
    if exchange.encoding in ("gzip", "deflate"):
        try:
            data = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data)
        except zlib.error:
            return []
    if not exchange.streamed:
        return [data]
    return [line[5:] for line in data.split(b"\n") if line.startswith(b"data:")]


def prompt_text(asked: dict[str, Any]) -> str:
    """Everything that goes into the prompt, in its order; parts that are no text as their JSON."""
    if "messages" not in asked:
        prompt = asked.get("prompt", "")
        return prompt if isinstance(prompt, str) else _json(prompt)
    head = _json(asked["tools"]) if asked.get("tools") else ""
    messages = cast(list[Any], asked["messages"]) if isinstance(asked["messages"], list) else [asked["messages"]]
    return head + "".join(f"\x1e{_dict(one).get('role', '')}\x1f{_said(one)}" for one in messages)


def _said(message: object) -> str:
    content = _dict(message).get("content")
    return content if isinstance(content, str) else _json(message)


def sampling(asked: dict[str, Any]) -> Sampling:
    """What the request says about drawing tokens; values of a wrong type count as not said."""
    stop = asked.get("stop")
    tools = asked.get("tools")
    count = _whole(asked.get("n"))
    format_ = _dict(asked.get("response_format")).get("type", "text")
    limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
    return Sampling(
        temperature=_number(asked.get("temperature")),
        top_p=_number(asked.get("top_p")),
        top_k=_whole(asked.get("top_k")),
        max_tokens=_whole(limit),
        n=1 if count is None else count,
        stream=asked.get("stream") is True,
        seeded=asked.get("seed") is not None,
        logprobs=bool(asked.get("logprobs")),
        stops=1 if isinstance(stop, str) else _length(stop),
        constrained=format_ != "text" or any(key.startswith(("guided_", "structured_")) for key in asked),
        tools=_length(tools),
    )


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("is not JSON") from None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def _dict(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _length(value: object) -> int:
    return len(cast(list[object], value)) if isinstance(value, list) else 0


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None


def _number(value: object) -> float | None:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53 else None
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
