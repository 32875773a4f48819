"""`reforward serve`, and the verbs that speak to a running server."""

from typing import Annotated

import typer
from rich.markup import escape

from reforward.app.extras import need
from reforward.cli import show
from reforward.cli.options import IdArg, Json, SubjectArg, Threads
from reforward.domain.record import short


def serve(
    subject: SubjectArg,
    host: Annotated[str, typer.Option(help="Address to listen on; other machines reach 0.0.0.0.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.")] = 8000,
    candidate: Annotated[
        str, typer.Option(help="Id of the forward to begin with, or stock. Default: the best accepted.")
    ] = "",
    slots: Annotated[int, typer.Option(help="Answers in flight at once.")] = 4,
    length: Annotated[
        int | None, typer.Option(help="Tokens of a request, prompt and answer. Default: the model's, at most 2,048.")
    ] = None,
    queue: Annotated[int, typer.Option(help="Answers that may wait for a slot; more are refused with 429.")] = 64,
    exact: Annotated[
        bool, typer.Option("--exact", help="Answers that do not depend on what else is served; slower.")
    ] = False,
    threads: Threads = None,
) -> None:
    """Serve SUBJECT with an OpenAI-compatible API. REFORWARD_API_KEY, if set, is asked of clients.

    Until a signal comes; then requests in service may end. Language models only.
    """
    need("serve")
    from reforward.app.live.serving import Setup
    from reforward.app.live.serving import serve as run

    setup = Setup(
        host=host, port=port, candidate=candidate, slots=slots, length=length, queue=queue, exact=exact, threads=threads
    )
    run(subject, setup, tell=say)


def status(as_json: Json = False) -> None:
    """What the running server serves, and how busy it is."""
    from reforward.app.live.deployments import status as run

    facts = run()
    if as_json:
        show.as_json(facts)
        return
    serves = facts["serves"]
    now = f"{short(serves['candidate'])} ({serves['cause']} {serves['at']})" if serves else "nothing yet"
    say(f"{facts['model']}: {facts['state']}, serves {now}, {facts['in_service']} answers in service")
    if facts["search"]:
        say(f"  search: {facts['search']}")
    for role, lane in facts["lanes"].items():
        about = f"{lane['running']} running, {lane['waiting']} waiting, {lane['calls']} calls"
        say(f"  {role:<7} {lane['candidate']}  {about}")
    say(
        f"  {facts['handed_over']} slots handed over, {facts['resumed']} answers begun anew, {facts['workers_lost']} workers lost"
    )


def deployments(
    limit: Annotated[int, typer.Option(min=1, help="Newest rows to print.")] = 30, as_json: Json = False
) -> None:
    """What served from when, and how canaries ended; newest last."""
    from reforward.app.live.deployments import deployments as run

    lines = run(limit)
    if as_json:
        show.as_json(lines)
        return
    for line in lines:
        about = f"{line.at[:19]}  {short(line.id)}  {short(line.candidate)}  {line.what:<19}"
        say(f"{about} {line.seconds:8.2f} s  {line.detail}".rstrip())


def rollback(
    deployment: Annotated[
        str, typer.Argument(help="Id of a deployment since the start. Default: the one before.")
    ] = "",
) -> None:
    """Have the running server go back to an earlier deployment."""
    from reforward.app.live.deployments import rollback as run

    say(run(deployment))


def deploy(
    record: IdArg,
    force: Annotated[bool, typer.Option("--force", help="At once, without a canary.")] = False,
    requests: Annotated[int, typer.Option(min=6, help="Requests of the canary, and of its control.")] = 20,
    mirror: Annotated[
        bool, typer.Option("--mirror", help="Give the canary copies of requests, whose answers nobody sees.")
    ] = False,
) -> None:
    """Bring a candidate into service, by a canary."""
    from reforward.app.live.deployments import deploy as run

    say(run(record, canary=not force, requests=requests, mirror=mirror))


def say(text: str) -> None:
    """One line, as it is."""
    show.console.print(escape(text))
