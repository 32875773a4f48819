"""Routes by which the command line speaks to a running server. They ask for a key that lies in a file of the owner's alone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reforward.domain.record import short
from reforward.serve.front import Front
from reforward.serve.http import Json, holds
from reforward.serve.lane import Lane
from reforward.serve.protocol import Refused
from reforward.serve.rollout import Policy
from reforward.serve.switch import Choice, Switch

MOST_BODY = 4096
LOCAL = ("127.0.0.1", "::1")


class Deploy(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /admin/deploy`."""

    candidate: str
    """Id, or the first digits of its hash."""
    canary: bool = True
    requests: int = 20
    mirror: bool = False


class Rollback(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /admin/rollback`."""

    to: str = ""


class Search(Protocol):
    """What looks for a faster forward beside the server."""

    @property
    def doing(self) -> str:
        """In words."""
        ...

    def pause(self) -> None:
        """Begin nothing new."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...


def admin_routes(
    key: str, front: Callable[[], Front], choose: Callable[[str], Choice], search: Callable[[], Search | None]
) -> list[Route]:
    """`choose` finds a candidate and why it may serve; `BadInput` if there is none."""

    async def status(request: Request) -> Response:
        beside = search()
        return Json(_status(front()) | {"search": beside.doing if beside else None})

    async def pause(request: Request) -> Response:
        _running(search()).pause()
        return Json({"ended": "paused: what is being measured ends at its next pair"})

    async def resume(request: Request) -> Response:
        _running(search()).resume()
        return Json({"ended": "the search goes on"})

    async def deploy(request: Request) -> Response:
        asked = _read(await request.body(), Deploy)
        choice = await asyncio.to_thread(choose, asked.candidate)
        policy = Policy(requests=asked.requests, mirror=asked.mirror) if asked.canary else None
        return Json({"ended": await asyncio.wrap_future(front().switch.deploy(choice, policy))})

    async def rollback(request: Request) -> Response:
        asked = _read(await request.body(), Rollback)
        return Json({"ended": await asyncio.wrap_future(front().switch.rollback(asked.to))})

    return [
        Route("/admin/status", _local(key, status), methods=["GET"]),
        Route("/admin/deploy", _local(key, deploy), methods=["POST"]),
        Route("/admin/rollback", _local(key, rollback), methods=["POST"]),
        Route("/admin/pause", _local(key, pause), methods=["POST"]),
        Route("/admin/resume", _local(key, resume), methods=["POST"]),
    ]


def _running(search: Search | None) -> Search:
    if search is None:
        raise Refused("nothing is searched beside this server; start it with reforward up", status=409)
    return search


def _local(key: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def called(request: Request) -> Response:
        near = request.client is not None and request.client.host in LOCAL
        if not near or not holds(request, key):
            raise Refused("there is nothing here", status=404)
        return await endpoint(request)

    return called


def _read(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body[:MOST_BODY], type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise Refused(f"the body cannot be used: {error}") from None


def _status(front: Front) -> dict[str, Any]:
    switch: Switch = front.switch
    lanes = {role: _lane(lane) for role, lane in list(switch.driver.lanes.items())}
    deployment = switch.deployed[-1] if switch.deployed else None
    return {
        "state": "draining" if front.draining else switch.state,
        "model": front.metrics.model,
        "serves": asdict(deployment) | {"id": deployment.id} if deployment else None,
        "lanes": lanes,
        "in_service": front.load,
        "resumed": switch.driver.resumed,
        "handed_over": switch.driver.handed,
        "workers_lost": switch.crashes,
    }


def _lane(lane: Lane) -> dict[str, Any]:
    return {
        "candidate": short(lane.candidate.id),
        "pid": lane.worker.pid,
        "running": len(lane.scheduler.running),
        "waiting": lane.scheduler.waiting,
        "calls": lane.calls,
        "longest": lane.validity.length,
    }
