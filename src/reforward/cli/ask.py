"""`reforward ask`: the door, from the command line of an agent."""

from typing import Annotated

import typer

from reforward.cli import show
from reforward.cli.options import FolderArg
from reforward.domain.job import Kind

EXIT_BY_RULING = {"accept": 0, "reject": 7, "unsure": 8}


def ask(
    kind: Annotated[Kind, typer.Argument(help="measure, submit or profile.")],
    folder: FolderArg,
    door: Annotated[str | None, typer.Option(help="Address from `reforward mcp`. Default: REFORWARD_DOOR.")] = None,
    reason: Annotated[str, typer.Option(help="submit: why it should be faster.")] = "",
    repeat: Annotated[int, typer.Option(min=0, help="A higher number measures the same tree once more.")] = 0,
) -> None:
    """Ask an open run to measure, submit or profile a source tree. Prints JSON."""
    from reforward.app.agents.client import ask as run
    from reforward.app.config import load_config

    address = door if door is not None else load_config().door
    state = run(kind, folder, door=address.rstrip("/"), reason=reason, repeat=repeat)
    show.as_json(state)
    if state["state"] != "done":
        raise typer.Exit(1)
    if kind == "submit":
        raise typer.Exit(EXIT_BY_RULING[state["result"]["ruling"]])
