"""`reforward mcp`: the door for agents, of any kind and any number."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from reforward.app.extras import need
from reforward.app.settings import Settings
from reforward.cli import show
from reforward.cli.live import Live
from reforward.cli.options import FromStock, MinGain, Numerics, Requests, Resume, Scale, SubjectArg, Threads

if TYPE_CHECKING:
    from concurrent.futures import Future

    from reforward.app.agents.desk import Desk
    from reforward.app.agents.hosting import Door


def mcp(
    subject: SubjectArg,
    http: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve HTTP on this port of localhost (0: any free one).")
    ] = None,
    guest: Annotated[
        list[str] | None, typer.Option(help="With --http: a guest, who gets an address of its own; may be repeated.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Time, such as 30m. Default: until the client goes.")] = None,
    resume: Resume = False,
    from_stock: FromStock = False,
    min_gain: MinGain = 0.01,
    numerics: Numerics = None,
    length_scale: Scale = None,
    requests: Requests = 6,
    threads: Threads = None,
) -> None:
    """Let agents work on SUBJECT. MCP on stdin and stdout, or with --http MCP and plain JSON on localhost."""
    from reforward.app.agents.hosting import host

    settings = Settings(
        min_gain=min_gain, numerics=numerics, length_scale=length_scale, requests=requests, threads=threads
    )
    with Live(as_json=True) as live:
        door = _surface(http, guest or ["guest"])
        host(subject, settings, budget=budget, resume=resume, from_stock=from_stock, door=door, emit=live)


def _surface(port: int | None, names: list[str]) -> "Door":
    need("agents")
    from reforward.mcp.door import open_door, open_stdio

    if port is None:
        return open_stdio

    @contextmanager
    def announced(coming: "Future[Desk]") -> Generator[None]:
        with open_door(coming, port) as guests:
            for name in names:
                address = guests.invite(name)
                show.console.print(f"{name}: {address} (JSON over HTTP), {address}/mcp (MCP, streamable HTTP)")
            yield

    return announced
