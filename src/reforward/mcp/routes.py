"""The door as plain JSON over HTTP. Every path begins with the key of its guest."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from reforward.domain.errors import BadInput, NoSuchJob, ReforwardError, Unavailable
from reforward.domain.job import Kind
from reforward.mcp.calls import Calls, Order
from reforward.mcp.guests import Guests
from reforward.propose.knock import PATHS

MOST_BODY = 4 << 20
"""Bytes of a request: a candidate of the largest size, in JSON."""
Endpoint = Callable[[Request, str], Awaitable[Response]]
"""(request, author) -> response."""


def make_routes(calls: Calls, guests: Guests) -> list[Route]:
    """`POST` and `GET` of jobs, and what can be read."""

    async def status(request: Request, author: str) -> Response:
        return JSONResponse(await calls.status(author))

    async def history(request: Request, author: str) -> Response:
        return JSONResponse(await calls.history(_whole(request, "limit", 50), author))

    async def diff(request: Request, author: str) -> Response:
        query = request.query_params
        return JSONResponse(await calls.difference(query.get("a", "incumbent"), query.get("b", "stock"), author))

    async def source(request: Request, author: str) -> Response:
        query, lines = request.query_params, (_whole(request, "first", 1), _whole(request, "count", 2000))
        return JSONResponse(await calls.source(query.get("of", "incumbent"), query.get("path", ""), *lines, author))

    async def brief(request: Request, author: str) -> Response:
        return PlainTextResponse(await calls.brief(author, guests.address(request.path_params["key"])))

    reading = {"status": status, "history": history, "diff": diff, "source": source, "brief": brief}
    routes = [_route(guests, f"/{{key}}/{name}", endpoint, "GET") for name, endpoint in reading.items()]
    for kind, name in PATHS.items():
        routes.append(_route(guests, f"/{{key}}/{name}", _asking(calls, kind), "POST"))
    for name in (*PATHS.values(), "jobs"):
        routes.append(_route(guests, f"/{{key}}/{name}/{{job}}", _telling(calls), "GET"))
    return routes


def _asking(calls: Calls, kind: Kind) -> Endpoint:
    async def post(request: Request, author: str) -> Response:
        order = _order(await _body(request))
        state = await calls.ask(kind, order, author, _seconds(request))
        return JSONResponse(state, status_code=202 if state["state"] in ("queued", "running") else 200)

    return post


def _telling(calls: Calls) -> Endpoint:
    async def get(request: Request, author: str) -> Response:
        return JSONResponse(await calls.state(request.path_params["job"], _seconds(request)))

    return get


def _route(guests: Guests, path: str, endpoint: Endpoint, method: str) -> Route:
    async def called(request: Request) -> Response:
        try:
            return await endpoint(request, guests.author(request.path_params["key"]))
        except NoSuchJob as error:
            return _error(404, str(error))
        except BadInput as error:
            return _error(400, str(error))
        except Unavailable as error:
            return _error(503, str(error))
        except ReforwardError as error:
            return _error(500, str(error))

    return Route(path, called, methods=[method])


def _error(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status_code=status)


async def _body(request: Request) -> bytes:
    """The whole body, read no further than its limit."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            raise HTTPException(413, f"a request may hold {MOST_BODY:,} bytes; send a smaller tree")
    return body


def _order(body: bytes) -> Order:
    try:
        return msgspec.json.decode(body, type=Order)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        shape = '{"files": {"forward.py": "..."}, "base": "", "reason": "", "repeat": 0}'
        raise BadInput(f"the body is not what is asked for ({error}); send JSON like {shape}") from None


def _seconds(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"wait={text!r} is no number of seconds; write wait=30") from None


def _whole(request: Request, name: str, otherwise: int) -> int:
    text = request.query_params.get(name, str(otherwise))
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{name}={text!r} is no whole number; write {name}={otherwise}") from None


def failed(request: Request, error: Exception) -> Response:
    """Errors of HTTP itself, as JSON too."""
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail)
