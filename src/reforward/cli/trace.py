"""`reforward trace …`: read, convert and replay traffic, and look after what a capture has kept."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from reforward.cli import show
from reforward.cli.options import Json

if TYPE_CHECKING:
    from reforward.traffic.load import Percentiles, Replayed

trace = typer.Typer(no_args_is_help=True, help="Read, convert and replay traffic; look after captures.")

FileArg = Annotated[
    Path, typer.Argument(help="Azure CSV, Mooncake JSONL, BurstGPT CSV, ours, or the folder of a capture.")
]
NameArg = Annotated[str | None, typer.Argument(help="A capture. Default: all of them.")]


@trace.command()
def summary(file: FileArg, as_json: Json = False) -> None:
    """Lengths, arrivals, burstiness and reuse of a trace."""
    from reforward.app.read import trace_summary
    from reforward.cli.summary import trace_facts

    facts = trace_summary(file)
    show.as_json(facts) if as_json else trace_facts(facts)


@trace.command()
def convert(
    file: FileArg,
    out: Annotated[Path, typer.Argument(help="A new file.")],
    to: Annotated[
        Literal["reforward", "mooncake"],
        typer.Option(help="reforward keeps all that is known; mooncake is what other tools read."),
    ] = "reforward",
) -> None:
    """Write a trace in another format.

    Hashes are renumbered, and when the traffic was is left out.
    """
    from reforward.app.live.traces import convert as run

    read, rows = run(file, out, to)
    left_out = f"{len(read.bad_rows)} bad rows, {read.failed} failed calls and {read.torn} torn lines left out"
    show.console.print(f"{escape(str(out))}: {rows} requests as {to}; {left_out}")


@trace.command()
def replay(
    file: FileArg,
    url: Annotated[str, typer.Option(help="Base address of an OpenAI-compatible server; it ends in /v1.")],
    model: Annotated[str | None, typer.Option(help="Default: the first that the server lists.")] = None,
    length_scale: Annotated[float, typer.Option(help="Multiply token counts by this, at most 1.")] = 1.0,
    time_scale: Annotated[float, typer.Option(help="Play so many times as fast as it happened.")] = 1.0,
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many requests.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the words of prompts and the spread of rounded times.")] = 0,
    as_json: Json = False,
) -> None:
    """Play a trace against a server, open loop.

    OPENAI_API_KEY is sent if it is set.
    """
    from rich.progress import Progress

    from reforward.app.live.traces import replay as run

    with Progress(console=show.errors, transient=True, disable=not show.errors.is_terminal) as progress:
        task = progress.add_task("requests answered", total=limit)
        facts = run(
            file,
            url,
            model=model,
            length_scale=length_scale,
            time_scale=time_scale,
            limit=limit,
            seed=seed,
            done=lambda count: progress.advance(task, count),
        )
    show.as_json(facts) if as_json else _replayed(facts)
    raise typer.Exit(1 if facts.failed == facts.requests else 0)


@trace.command()
def drift(
    file: FileArg,
    reference: Annotated[
        Path | None, typer.Option(help="A trace to compare with. Default: the first 8 windows.")
    ] = None,
    window: Annotated[int, typer.Option(min=1, help="Requests a window, at least 200.")] = 500,
    as_json: Json = False,
) -> None:
    """Say whether traffic is still what it was. Exit code 8 if not."""
    from reforward.app.live.drift import drift as run

    facts = run(file, reference, window)
    if as_json:
        show.as_json(facts)
    else:
        for looked in facts.looks:
            show.console.print(looked.words)
        end = "no alarm" if facts.alarm is None else f"first alarm after {facts.alarm.requests} requests"
        show.console.print(
            f"reference: {facts.reference} requests; {len(facts.looks)} windows of {facts.window}: {end}"
        )
    raise typer.Exit(8 if facts.alarm else 0)


@trace.command()
def contents(
    name: Annotated[str, typer.Argument(help="A capture that was made with --content.")],
    days: Annotated[float, typer.Option(min=0, help="What is older is not told.")] = 7.0,
) -> None:
    """Print prompts and answers that a capture was told to keep.

    One JSON line each. That they were read is written down.
    """
    import json

    from reforward.app.live.traces import kept_contents

    for told in kept_contents(name, days):
        typer.echo(json.dumps(told))


@trace.command()
def purge(
    name: NameArg = None,
    days: Annotated[float, typer.Option(min=0, help="Delete files whose last line is at least so old; 0: all.")] = 7.0,
    contents_only: Annotated[bool, typer.Option("--contents-only", help="Leave the shapes.")] = False,
) -> None:
    """Delete what captures have kept."""
    from reforward.app.live.traces import purge as run

    shapes, secrets = run(name, days, contents_only=contents_only)
    show.console.print(f"deleted {shapes} files of shapes and {secrets} files of contents")


def _replayed(facts: "Replayed") -> None:
    """Latencies as a client saw them."""
    console = show.console
    console.print(
        f"{escape(facts.model)} at {escape(facts.url)}: {facts.requests} requests in {facts.seconds:.1f} s, {facts.failed} failed; "
        f"lengths x {facts.length_scale:g}, time x {facts.time_scale:g}"
    )
    for error in facts.errors:
        console.print(f"  [red]{escape(error)}[/]")
    if facts.spread_s:
        console.print(f"time stamps are rounded to about {facts.spread_s:.2g} s; requests were spread between them")
    if not facts.fixed_length:
        console.print("the server does not take ignore_eos: answers may be shorter than in the trace")
    rows: list[tuple[str, Percentiles | None]] = [
        ("TTFT ms", facts.ttft_s), ("ITL ms", facts.itl_s), ("E2E ms", facts.e2e_s), ("generator's lag ms", facts.lag_s),
    ]  # fmt: skip
    show.rows(["", "p50", "p90", "p99", "samples"], [[name, *_cells(found)] for name, found in rows])
    got = f"prompt tokens {facts.prompt_got} of {facts.prompt_asked}, output tokens {facts.output_got} of {facts.output_asked}"
    slow = (
        "" if facts.slow_tail_tok_s is None else f"; {facts.slow_tail_tok_s:.1f} tok/s of a user at the slow tail (P90)"
    )
    console.print(f"{got}; {facts.output_tok_s:.1f} output tok/s{slow}")


def _cells(found: "Percentiles | None") -> list[str]:
    if found is None:
        return ["-", "-", "-", "0"]
    return [*(f"{1000 * value:.2f}" for value in (found.p50, found.p90, found.p99)), str(found.samples)]
