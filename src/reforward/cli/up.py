"""`reforward up`: serve and search in one, and the verbs that pause the search."""

from typing import Annotated

import typer

from reforward.app.extras import need
from reforward.cli.live import Live
from reforward.cli.options import SubjectArg, Threads
from reforward.cli.serve import say


def up(
    subject: SubjectArg,
    host: Annotated[str, typer.Option(help="Address to listen on; other machines reach 0.0.0.0.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.")] = 8000,
    slots: Annotated[int, typer.Option(help="Answers in flight at once.")] = 4,
    window: Annotated[
        int,
        typer.Option(help="Requests after which the search begins, and of each window in which a shift is looked for."),
    ] = 500,
    windows: Annotated[
        int, typer.Option(help="Windows that later ones are compared with; fewer alarm more often for nothing.")
    ] = 8,
    canary: Annotated[int, typer.Option(min=6, help="Requests that a winner answers beside the incumbent first.")] = 20,
    min_gain: Annotated[float, typer.Option(help="The smallest gain worth a swap: 0.05 is 5 %.")] = 0.05,
    candidates: Annotated[
        int | None, typer.Option(min=1, help="Candidates of one search. Default: until ideas end.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Serve, search beside it, and deploy what is proven.

    SUBJECT is served until a signal comes. The search begins when a window of requests is known, and again when traffic shifts.
    """
    need("serve", "drift", "capture")
    from reforward.app.live.serving import Setup
    from reforward.app.live.up import Habits
    from reforward.app.live.up import up as run

    setup = Setup(host=host, port=port, slots=slots, threads=threads)
    habits = Habits(window=window, windows=windows, canary=canary, min_gain=min_gain, candidates=candidates)
    with Live() as live:
        run(subject, setup, habits, tell=say, emit=live)


def pause() -> None:
    """Hold the search beside the running server."""
    from reforward.app.live.deployments import pause as run

    say(run())


def resume() -> None:
    """Have a paused search go on."""
    from reforward.app.live.deployments import resume as run

    say(run())
