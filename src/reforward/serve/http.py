"""The HTTP surface: OpenAI's endpoints, health, metrics, and admin routes for localhost."""

import asyncio
import hmac
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from reforward.domain.errors import BadInput, ReforwardError
from reforward.domain.workload import Sampling
from reforward.models.tokenizer import Tokenizer
from reforward.serve.answers import Answer
from reforward.serve.front import Front, Open, Order, new_seed
from reforward.serve.metrics import Metrics
from reforward.serve.openapi import document
from reforward.serve.protocol import (
    ChatRequest,
    CompletionRequest,
    Delivery,
    Refused,
    check_neutral,
    delivery,
    parse,
    prompts_of,
)
from reforward.serve.sampling import Drawing
from reforward.serve.sequence import Piece, Wish

MOST_BODY = 4 << 20
"""Bytes of a request."""
BODY_S = 30.0
"""In which a body must have come."""
COMPLETION_TOKENS = 16
"""Of a completion that names no `max_tokens`, as in OpenAI's API."""
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class Service:
    """What the routes stand on. `front` is there once the event loop runs."""

    model: str
    created: int
    words: Tokenizer
    vocab: int
    length: int
    """Positions of a request, prompt and answer."""
    metrics: Metrics
    front: Callable[[], Front]
    api_key: str = ""
    """Asked of every client if not empty."""


class Json(Response):
    """A JSON body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class Events(Response):
    """A stream of server-sent events. When the client goes, or at the end, `over` is called."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], over: Callable[[int], None]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self.events, self.over = events, over
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        telling = asyncio.ensure_future(self._tell(send))
        going = asyncio.ensure_future(_gone(receive))
        status = 499
        try:
            await asyncio.wait((telling, going), return_when=asyncio.FIRST_COMPLETED)
            if telling.done() and telling.exception() is None:
                status = 200
        finally:
            for task in (telling, going):
                task.cancel()
            self.over(status)
            with suppress(asyncio.CancelledError, OSError):
                await telling

    async def _tell(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for event in self.events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def make_routes(service: Service) -> list[Route]:
    """All but the admin routes."""

    async def models(request: Request) -> Response:
        return Json({"object": "list", "data": [_model(service)]})

    async def model(request: Request) -> Response:
        _known(service, request.path_params["model"])
        return Json(_model(service))

    async def chat(request: Request) -> Response:
        asked = parse(await _body(request), ChatRequest)
        _known(service, asked.model)
        try:
            prompt = service.words.conversation([{"role": one.role, "content": one.text} for one in asked.messages])
        except BadInput as error:
            raise Refused(str(error), param="messages") from None
        if asked.top_logprobs and not asked.logprobs:
            raise Refused("top_logprobs needs logprobs to be true", param="top_logprobs")
        count = (asked.top_logprobs or 0) if asked.logprobs else None
        most = asked.max_completion_tokens or asked.max_tokens
        order = _order(service, request, asked, [prompt], most=most, logprobs=count)
        return await _answer(service, request, order, delivery(asked))

    async def completions(request: Request) -> Response:
        asked = parse(await _body(request), CompletionRequest)
        _known(service, asked.model)
        check_neutral(asked)
        prompts = [service.words.encode(one) if isinstance(one, str) else one for one in prompts_of(asked)]
        most = asked.max_tokens or COMPLETION_TOKENS
        order = _order(service, request, asked, prompts, most=most, logprobs=asked.logprobs)
        return await _answer(service, request, order, delivery(asked))

    async def health(request: Request) -> Response:
        front = service.front()
        state = "draining" if front.draining else front.switch.state
        return Json({"status": state}, status_code=200 if front.ready else 503)

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(request: Request) -> Response:
        return Json(document(service.model))

    open_to_all = [Route("/health", health), Route("/metrics", metrics), Route("/openapi.json", openapi)]
    guarded: list[tuple[str, Endpoint, str]] = [
        ("/v1/models", models, "GET"),
        ("/v1/models/{model:path}", model, "GET"),
        ("/v1/chat/completions", chat, "POST"),
        ("/v1/completions", completions, "POST"),
    ]
    return [*open_to_all, *(Route(path, _keyed(service.api_key, it), methods=[how]) for path, it, how in guarded)]


def make_app(service: Service, routes: Many[Route], life: Callable[[], Any]) -> Starlette:
    """The application; `life` is an asynchronous context manager in which it serves."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with life():
            yield

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        service.metrics.refused(error.status)
        return Json(error.body, status_code=error.status, headers=error.headers)

    def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return refused(request, Refused(error.detail, status=error.status_code, headers=dict(error.headers or {})))

    def broken(request: Request, error: Exception) -> Response:
        return refused(request, Refused(f"internal error: {type(error).__name__}", status=500))

    def unfit(request: Request, error: Exception) -> Response:
        return refused(request, Refused(str(error), status=400 if isinstance(error, BadInput) else 503))

    handlers = {Refused: refused, HTTPException: failed, ReforwardError: unfit, Exception: broken}
    return Starlette(routes=list(routes), lifespan=lifespan, exception_handlers=handlers)


def holds(request: Request, key: str) -> bool:
    """It says `Authorization: Bearer KEY`."""
    told = request.headers.get("authorization", "").removeprefix("Bearer ")
    return hmac.compare_digest(told.encode(), key.encode())


def _keyed(key: str, endpoint: Endpoint) -> Endpoint:
    """Asks for `Authorization: Bearer KEY` if there is a key."""

    async def called(request: Request) -> Response:
        if key and not holds(request, key):
            raise Refused("the API key is missing or wrong", status=401, code="invalid_api_key")
        return await endpoint(request)

    return called


def _model(service: Service) -> dict[str, Any]:
    about = {"id": service.model, "object": "model", "created": service.created, "owned_by": "reforward"}
    return about | {"max_model_len": service.length}


def _known(service: Service, model: str) -> None:
    if model != service.model:
        words = f"the model {model!r} does not exist; this server has {service.model!r}"
        raise Refused(words, status=404, code="model_not_found", param="model")


async def _body(request: Request) -> bytes:
    """The whole body, read no further than its limit and no longer than its time."""
    body, told = bytearray(), request.headers.get("content-length", "0")
    try:
        async with asyncio.timeout(BODY_S):
            if not told.isdecimal() or int(told) <= MOST_BODY:
                async for part in request.stream():
                    body += part
                    if len(body) > MOST_BODY:
                        break
    except TimeoutError:
        raise Refused(
            f"the body did not come within {BODY_S:g} s", status=408, headers={"Connection": "close"}
        ) from None
    if len(body) > MOST_BODY or (told.isdecimal() and int(told) > MOST_BODY):
        words = f"a request may hold {MOST_BODY:,} bytes; send less"
        raise Refused(words, status=413, headers={"Connection": "close"})
    return bytes(body)


def _order(
    service: Service, request: Request, asked: ChatRequest | CompletionRequest, prompts: list[list[int]], *,
    most: int | None, logprobs: int | None,
) -> Order:  # fmt: skip
    where = "messages" if isinstance(asked, ChatRequest) else "prompt"
    for prompt in prompts:
        if not prompt:
            raise Refused("the prompt is empty; send some text", param=where)
        if any(not 0 <= token < service.vocab for token in prompt):
            raise Refused(f"a token lies outside the vocabulary of {service.vocab}", param=where)
        if len(prompt) + (most or 1) > service.length:
            words = f"{len(prompt)} prompt tokens and {most or 1} to make are more than this server's {service.length}"
            raise Refused(f"{words}; shorten one of them", code="context_length_exceeded", param=where)
    stops, temperature = asked.stops, 1.0 if asked.temperature is None else asked.temperature
    seed = new_seed() if asked.seed is None else asked.seed
    drawing = Drawing(temperature=temperature, top_p=1.0 if asked.top_p is None else asked.top_p, seed=seed)
    room = service.length - max(map(len, prompts))
    ends = frozenset[int]() if asked.ignore_eos else service.words.stops
    host = request.client.host if request.client else ""
    return Order(
        prompts=tuple(map(tuple, prompts)),
        choices=asked.n or 1,
        wish=Wish(drawing=drawing, most=most or room, stops=stops, ends=ends, logprobs=logprobs),
        client=f"{host}/{asked.user or ''}",
        sampling=Sampling(
            temperature=asked.temperature, top_p=asked.top_p, max_tokens=most, n=asked.n or 1, stream=bool(asked.stream),
            seeded=asked.seed is not None, logprobs=logprobs is not None, stops=len(stops),
        ),
    )  # fmt: skip


async def _answer(service: Service, request: Request, order: Order, how: Delivery) -> Response:
    front = service.front()
    opened = front.begin(order)
    answer = Answer(how, service.model, service.words.decode)
    if how.stream:
        return Events(_events(front, opened, answer), lambda status: front.end(opened, status))
    gathering = asyncio.ensure_future(_gather(front, opened))
    going = asyncio.ensure_future(_gone(request.receive))
    status = 499
    try:
        await asyncio.wait((gathering, going), return_when=asyncio.FIRST_COMPLETED)
        if not gathering.done():
            return Response(status_code=status)
        pieces = gathering.result()
        failed = next((piece.error for many in pieces for piece in many if piece.reason == "error"), None)
        status = 200 if failed is None else 500
        if failed is not None:
            raise Refused(failed, status=500)
        return Json(answer.whole(list(zip(opened.sequences, pieces, strict=True)), opened.usage))
    finally:
        gathering.cancel()
        going.cancel()
        front.end(opened, status)


async def _gather(front: Front, opened: Open) -> list[list[Piece]]:
    found: list[list[Piece]] = [[] for _ in opened.sequences]
    async for index, piece in front.pieces(opened):
        found[index].append(piece)
    return found


async def _events(front: Front, opened: Open, answer: Answer) -> AsyncIterator[bytes]:
    begun = set[int]()
    async for index, piece in front.pieces(opened):
        if piece.reason == "error":
            yield _event(Refused(piece.error, status=500).body)
            continue
        prompt = opened.sequences[index].prompt if index not in begun else None
        if index not in begun and answer.how.chat:
            yield _event(answer.first(index))
        begun.add(index)
        if piece.text or piece.reason or piece.chosen or answer.how.ids:
            yield _event(answer.chunk(index, piece, prompt))
    if answer.how.usage:
        yield _event(answer.last(opened.usage))
    yield b"data: [DONE]\n\n"


def _event(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


async def _gone(receive: Receive) -> None:
    """Returns when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
