"""What clients may send, after OpenAI's API reference (https://platform.openai.com/docs/api-reference), and what is wrong with it.

A parameter that would change the answer and is not supported is refused by name, never ignored. `ignore_eos` and
`return_token_ids` are vLLM's.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

MOST_CHOICES = 16
MOST_STOPS, LONGEST_STOP = 16, 256
Natural = Annotated[int, msgspec.Meta(ge=1)]
Penalty = Annotated[float, msgspec.Meta(ge=0, le=0)]
"""Of the penalties only the neutral value is supported."""
WHERE = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`")


class Refused(Exception):
    """A request that is answered with an error: OpenAI's body, an HTTP status, and headers."""

    def __init__(
        self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.message, self.status, self.code, self.param, self.headers = message, status, code, param, headers or {}

    @property
    def body(self) -> dict[str, Any]:
        """`{"error": ...}`."""
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a stream tells besides."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: bool | None = False


class Shared(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Parameters of both kinds of completion. Null is the default of each."""

    model: str
    max_tokens: Natural | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[str, float], msgspec.Meta(max_length=0)] | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    """Heard and not used, as are `user` (but for fair admission), `store` and `service_tier`."""
    store: bool | None = None
    service_tier: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings; raises `Refused`."""
        found = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(found) > MOST_STOPS or any(not 1 <= len(stop) <= LONGEST_STOP for stop in found):
            words = f"stop may list {MOST_STOPS} strings of 1 to {LONGEST_STOP} characters, got {len(found)}"
            raise Refused(words, param="stop")
        return tuple(found)


class Part(msgspec.Struct, kw_only=True):
    """Part of a message."""

    type: str
    text: str = ""


class Message(msgspec.Struct, kw_only=True):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None

    @property
    def text(self) -> str:
        """Its content; raises `Refused` for what is no text."""
        if isinstance(self.content, str) or self.content is None:
            return self.content or ""
        other = next((part.type for part in self.content if part.type != "text"), None)
        if other is not None:
            raise Refused(f"a message part of type {other!r} cannot be read here; send text", param="messages")
        return "".join(part.text for part in self.content)


class Format(msgspec.Struct, kw_only=True):
    """Only plain text can be asked for."""

    type: Literal["text"]


class ChatRequest(Shared, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]
    max_completion_tokens: Natural | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    response_format: Format | None = None
    tools: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


class CompletionRequest(Shared, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/completions`."""

    prompt: str | list[str | int | list[int]]
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=5)] | None = None
    echo: Literal[None] | bool = None
    suffix: None = None
    best_of: Natural | None = None


R = TypeVar("R", ChatRequest, CompletionRequest)


def parse(body: bytes, kind: type[R]) -> R:
    """The request in a body; raises `Refused` that names the parameter."""
    try:
        plain: Any = msgspec.json.decode(body)
        if isinstance(plain, dict):
            plain = {key: _whole(value) for key, value in cast(dict[str, Any], plain).items()}
        return msgspec.convert(plain, kind)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        words = str(error)
        found = WHERE.search(words)
        unknown = re.search(r"unknown field `([^`]*)`", words)
        param = unknown.group(1) if unknown else found.group(1) or None if found else None
        raise Refused(f"the body cannot be used: {words}", param=param) from None


def _whole(value: Any) -> Any:
    """1.0 is a whole number, to JSON Schema as to JavaScript."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """How the answer is to be told."""

    chat: bool
    stream: bool
    usage: bool
    """A stream ends with a chunk of counts."""
    ids: bool
    """Token ids are told too."""


def delivery(request: ChatRequest | CompletionRequest) -> Delivery:
    """From the request."""
    options = request.stream_options or StreamOptions()
    if request.stream_options is not None and not request.stream:
        raise Refused("stream_options are for streams; set stream to true", param="stream_options")
    return Delivery(
        chat=isinstance(request, ChatRequest),
        stream=bool(request.stream),
        usage=bool(options.include_usage),
        ids=bool(request.return_token_ids),
    )


def prompts_of(request: CompletionRequest) -> list[str | list[int]]:
    """One or several prompts, as text or as tokens; raises `Refused`."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise Refused("prompt is empty; send some text", param="prompt")
    tokens = [one for one in prompt if isinstance(one, int)]
    if tokens and len(tokens) == len(prompt):
        return [tokens]
    if tokens:
        raise Refused("prompt mixes tokens with texts or lists; send one kind", param="prompt")
    return [one for one in prompt if not isinstance(one, int)]


def check_neutral(request: CompletionRequest) -> None:
    """Raises `Refused` for what is not supported unless it has no effect."""
    if request.echo:
        raise Refused("echo is not supported; put the prompt in front yourself", param="echo")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise Refused("best_of is not supported beyond n; leave it out", param="best_of")
