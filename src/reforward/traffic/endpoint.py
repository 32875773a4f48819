"""One OpenAI-compatible endpoint as a replay sees it: what it is called, what it accepts, what it answers and when."""

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import aiohttp
import msgspec

from reforward.domain.errors import BadInput
from reforward.traffic.prompts import Rate, drawn

SHORT, LONG = 64, 256
"""Words of the two probes that tell how many tokens a word is."""
READ_S = 600.0
"""A server that sends nothing for so long is given up."""


class Usage(msgspec.Struct):
    """Token counts as the server says them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Delta(msgspec.Struct):
    """A piece of a chat message."""

    content: str | None = None
    reasoning_content: str | None = None


class Choice(msgspec.Struct):
    """A piece of an answer, of either kind."""

    text: str | None = None
    delta: Delta | None = None

    @property
    def says(self) -> bool:
        """Whether any text is in it."""
        return bool(self.text or (self.delta and (self.delta.content or self.delta.reasoning_content)))


class Chunk(msgspec.Struct):
    """One event of a stream."""

    choices: list[Choice] = []
    usage: Usage | None = None


_CHUNK = msgspec.json.Decoder(Chunk)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a client saw of one request, in seconds since it was sent."""

    seconds: float
    ttft_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    """Between pieces of text."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    """As the server counted; if it does not, pieces of text."""
    error: str = ""
    """Empty if the answer is whole."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An address that was asked what it can do."""

    url: str
    """Of completions or chat completions."""
    model: str
    headers: dict[str, str]
    fixed_length: bool
    """It takes `ignore_eos`, so that answers have the observed length; else a model may stop earlier."""
    rate: Rate

    @property
    def chat(self) -> bool:
        """Whether prompts are messages."""
        return self.url.endswith("/chat/completions")

    def body(self, prompt: str, output: int) -> dict[str, Any]:
        """A streamed, greedy request."""
        asked: dict[str, Any] = {
            "model": self.model, "max_tokens": output, "temperature": 0.0, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        if self.fixed_length:
            asked["ignore_eos"] = True
        return asked | ({"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt})


async def ask(session: aiohttp.ClientSession, endpoint: Endpoint, prompt: str, output: int) -> Answer:
    """Send one request and read its stream to the end. Trouble is an `Answer` with an error."""
    begun = time.perf_counter()
    moments: list[float] = []
    usage: Usage | None = None
    error = ""
    try:
        async with session.post(endpoint.url, json=endpoint.body(prompt, output), headers=endpoint.headers) as response:
            if response.status != 200:
                error = f"HTTP {response.status}: {(await response.text())[:200]}"
            else:
                async for line in response.content:
                    usage = _heard(line, begun, moments) or usage
    except (aiohttp.ClientError, TimeoutError, ValueError) as trouble:
        error = f"{type(trouble).__name__}: {trouble}"[:200]
    if not error and not moments:
        error = "no text came"
    return Answer(
        seconds=time.perf_counter() - begun,
        ttft_s=moments[0] if moments else None,
        gaps_s=tuple(after - before for before, after in pairwise(moments)),
        prompt_tokens=usage.prompt_tokens if usage else 0,
        output_tokens=usage.completion_tokens if usage else len(moments),
        error=error,
    )


def _heard(line: bytes, begun: float, moments: list[float]) -> Usage | None:
    """Note when a piece of text came; the usage if the event has one."""
    if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
        return None
    chunk = _CHUNK.decode(line[5:])
    if any(choice.says for choice in chunk.choices):
        moments.append(time.perf_counter() - begun)
    return chunk.usage


async def meet(session: aiohttp.ClientSession, base: str, model: str | None, key: str) -> Endpoint:
    """Find out name, kind and manners of the endpoint at `base` (which ends in /v1). `BadInput` if nothing works."""
    base, headers = base.rstrip("/"), {"authorization": f"Bearer {key}"} if key else {}
    name = model or await _first_model(session, base, headers)
    told: list[str] = []
    for kind in ("/completions", "/chat/completions"):
        for fixed in (True, False):
            found = Endpoint(url=base + kind, model=name, headers=headers, fixed_length=fixed, rate=Rate())
            answers = [await ask(session, found, " ".join(drawn("probe", count)), 1) for count in (SHORT, LONG)]
            if not any(answer.error for answer in answers):
                return Endpoint(url=found.url, model=name, headers=headers, fixed_length=fixed, rate=_rate(answers))
            told.append(f"{kind}: {next(answer.error for answer in answers if answer.error)}")
    raise BadInput(f"{base} answers neither completions nor chat completions: {'; '.join(dict.fromkeys(told))}")


def _rate(answers: list[Answer]) -> Rate:
    """From the two probes; one token a word if the server does not count."""
    short, long = (answer.prompt_tokens for answer in answers)
    per_word = (long - short) / (LONG - SHORT)
    return Rate(base=short - SHORT * per_word, per_word=per_word) if per_word > 0 else Rate()


async def _first_model(session: aiohttp.ClientSession, base: str, headers: dict[str, str]) -> str:
    try:
        async with session.get(f"{base}/models", headers=headers) as response:
            told = await response.json(content_type=None)
        return str(told["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, IndexError, TypeError) as trouble:
        raise BadInput(
            f"{base}/models names no model ({type(trouble).__name__}: {trouble}); is the address right (it ends in /v1), "
            "or pass --model"
        ) from None
