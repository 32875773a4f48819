"""`reforward capture`: a transparent proxy that learns what a served model is asked."""

from typing import Annotated

import typer
from rich.markup import escape

from reforward.cli import show


def capture(
    upstream: Annotated[str, typer.Option(help="Root address of an OpenAI-compatible server, without /v1.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8901,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    name: Annotated[
        str, typer.Option(help="Of the capture; its files lie in REFORWARD_HOME/traffic/NAME.")
    ] = "default",
    content: Annotated[
        float, typer.Option(min=0, max=1, help="Keep prompts and answers of this share of calls, encrypted. 0: none.")
    ] = 0.0,
    content_days: Annotated[float, typer.Option(min=0.01, help="Days after which kept contents are deleted.")] = 7.0,
) -> None:
    """Stand before a server and record the shape of its traffic.

    Answers pass through untouched and unbuffered. Kept are times, lengths, sampling parameters and keyed hashes of prefixes; what
    was said only with --content. A request with the header X-No-Capture is passed on and not recorded. Ends on SIGINT or SIGTERM,
    when answers under way are done.
    """
    from reforward.app.live.capture import capture as run

    def ready(bound: int, folder: str) -> None:
        kept = f"contents of {content:.3g} of the calls for {content_days:g} days" if content else "no contents"
        show.console.print(
            f"http://{host}:{bound}/v1 passes on to {escape(upstream)}; shapes go to {escape(folder)}, {kept}"
        )

    counts = run(
        upstream, name=name, host=host, port=port, content_share=content, content_days=content_days, ready=ready
    )
    dropped = f"{counts.dropped_busy} dropped for lack of time, {counts.dropped_disk} for lack of disk"
    show.console.print(f"{counts.kept} of {counts.offered} calls recorded; {dropped}, {counts.unreadable} unreadable")
