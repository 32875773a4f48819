"""The command line. Each verb parses, calls one app function and prints its facts."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from reforward import __version__
from reforward.app.settings import Settings
from reforward.cli import show
from reforward.cli.judge import judge
from reforward.cli.live import Live
from reforward.domain.errors import ReforwardError

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
trace = typer.Typer(no_args_is_help=True, help="Read traffic traces.")
app.add_typer(trace, name="trace")
app.add_typer(judge, name="judge")

EPILOG = """Exit codes: 0 done (submit: accepted), 1 internal error, 2 bad input, 3 this machine lacks something,
4 engine lost, 5 ledger corrupt, 6 the candidate failed, 7 rejected, 8 unsure."""
EXIT_BY_RULING = {"accept": 0, "reject": 7, "unsure": 8}

SubjectArg = Annotated[
    str, typer.Argument(help="smollm2, smollm2-bf16, a checkpoint folder, subject.py or pkg.mod:factory")
]
FolderArg = Annotated[Path, typer.Argument(help="Folder that holds the source tree.")]
IdArg = Annotated[str, typer.Argument(help="An id, or the first digits of its hash.")]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON on stdout.")]
Traffic = Annotated[
    Path | None, typer.Option(help="Trace file (Azure CSV, Mooncake JSONL). Default: a packaged slice.")
]
Threads = Annotated[int | None, typer.Option(help="Threads of every worker. Default: physical cores.")]
MinGain = Annotated[float, typer.Option(help="The gain that counts: 0.01 is 1 %.")]
Scale = Annotated[float | None, typer.Option(help="Multiply token counts by this. Default: chosen and printed.")]
Requests = Annotated[int, typer.Option(help="Requests in the distilled workload.")]
Numerics = Annotated[
    Literal["bit-exact", "reassociated"] | None,
    typer.Option(help="Numerics class. Default: reassociated for language models, bit-exact for modules."),
]


@app.command(epilog=EPILOG)
def demo(budget: Annotated[str, typer.Option(help="Time for the loop.")] = "4m", as_json: Json = False) -> None:
    """One whole turn of the loop on SmolLM2-135M with real weights and a real trace, in a few minutes."""
    from reforward.app.optimize import DEMO_PROMPT, compare_answers, demo_settings, optimize
    from reforward.cli.summary import answers, report

    settings = demo_settings()
    with Live(as_json=as_json) as live:
        result = optimize("smollm2", settings, budget=budget, candidates=None, from_stock=True, emit=live)
        texts = compare_answers("smollm2", settings, result, emit=live)
    if as_json:
        show.as_json({"report": result, "answers": texts})
        return
    report(result)
    answers(DEMO_PROMPT, texts)


@app.command(epilog=EPILOG)
def optimize(
    subject: SubjectArg,
    traffic: Traffic = None,
    budget: Annotated[
        str | None, typer.Option(help="Time, such as 10m. Default 10m unless --candidates is given.")
    ] = None,
    candidates: Annotated[int | None, typer.Option(help="Candidates to screen.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the last run of the same settings.")] = False,
    from_stock: Annotated[
        bool, typer.Option(help="Begin at the stock forward, not at the best that is known.")
    ] = False,
    min_gain: MinGain = 0.01,
    numerics: Numerics = None,
    length_scale: Scale = None,
    requests: Requests = 6,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Search for a faster forward pass of SUBJECT, and prove it."""
    from reforward.app.optimize import optimize as run
    from reforward.cli.summary import report

    settings = Settings(
        traffic=traffic,
        min_gain=min_gain,
        numerics=numerics,
        length_scale=length_scale,
        requests=requests,
        threads=threads,
    )
    if budget is None and candidates is None:
        budget = "10m"
    with Live(as_json=as_json) as live:
        result = run(
            subject,
            settings,
            budget=budget,
            candidates=candidates,
            resume=resume,
            from_stock=from_stock,
            emit=live,
        )
    show.as_json(result) if as_json else report(result)


@app.command(epilog=EPILOG)
def measure(
    subject: SubjectArg,
    folder: FolderArg,
    tier: Annotated[
        Literal["fast", "slow"], typer.Option(help="fast: the first layers; slow: the whole model.")
    ] = "fast",
    traffic: Traffic = None,
    length_scale: Scale = None,
    requests: Requests = 6,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Time one source tree against the incumbent: facts without a verdict."""
    from reforward.app.submit import measure as run

    settings = Settings(traffic=traffic, length_scale=length_scale, requests=requests, threads=threads)
    with Live(as_json=as_json) as live:
        facts = run(subject, folder, tier, settings, emit=live)
    show.as_json(facts) if as_json else show.session(facts)


@app.command(epilog=EPILOG)
def submit(
    subject: SubjectArg,
    folder: FolderArg,
    reason: Annotated[str, typer.Option(help="Why it should be faster; kept with the proposal.")] = "submitted by hand",
    traffic: Traffic = None,
    min_gain: MinGain = 0.01,
    numerics: Numerics = None,
    length_scale: Scale = None,
    requests: Requests = 6,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """One candidate through both tiers to a verdict. Exit code 0 accepted, 7 rejected, 8 unsure."""
    from reforward.app.submit import submit as run

    settings = Settings(
        traffic=traffic,
        min_gain=min_gain,
        numerics=numerics,
        length_scale=length_scale,
        requests=requests,
        threads=threads,
    )
    with Live(as_json=as_json, details=as_json) as live:
        verdict = run(subject, folder, reason, settings, emit=live)
    show.as_json(verdict) if as_json else show.verdict_details(verdict)
    raise typer.Exit(EXIT_BY_RULING[verdict.ruling])


@app.command()
def log(limit: Annotated[int, typer.Option(help="Newest rows to print.")] = 30, as_json: Json = False) -> None:
    """What was tried: one line per verdict or skip, newest last."""
    from reforward.app.read import history
    from reforward.cli.summary import log_rows

    lines = history(limit)
    show.as_json(lines) if as_json else log_rows(lines)


@app.command("show")
def show_(record: IdArg, as_json: Json = False) -> None:
    """One record and what refers to it."""
    from reforward.app.read import describe
    from reforward.cli.summary import description

    facts = describe(record)
    show.as_json(facts) if as_json else description(facts)


@app.command()
def diff(
    a: IdArg, b: Annotated[str | None, typer.Argument(help="Default: the stock forward or parent of A.")] = None
) -> None:
    """Unified diff between two candidates; of one against its parent."""
    from reforward.app.read import difference

    print(difference(a, b), end="")


@app.command()
def best(subject: SubjectArg, as_json: Json = False) -> None:
    """The best accepted candidate of SUBJECT on each target."""
    from reforward.app.read import best as run
    from reforward.cli.summary import best_rows

    facts = run(subject)
    show.as_json(facts) if as_json else best_rows(facts)


@app.command(epilog=EPILOG)
def export(record: IdArg, folder: Annotated[Path, typer.Argument(help="A new or empty folder.")]) -> None:
    """Write a candidate as a drop-in source tree, with its evidence in a header."""
    from reforward.app.read import export as run

    for path in run(record, folder):
        show.console.print(str(path))


@app.command()
def verify() -> None:
    """Re-derive every id in the ledger, and every blob's hash."""
    from reforward.app.read import verify as run

    show.console.print(f"{run()} records and blobs match their ids")


@trace.command()
def summary(file: Annotated[Path, typer.Argument(help="Azure CSV or Mooncake JSONL.")], as_json: Json = False) -> None:
    """Lengths, arrivals and burstiness of a trace."""
    from reforward.app.read import trace_summary
    from reforward.cli.summary import trace_facts

    facts = trace_summary(file)
    show.as_json(facts) if as_json else trace_facts(facts)


@app.command()
def doctor(as_json: Json = False) -> None:
    """What this machine has, which protections are active, and a remedy for each thing that is missing."""
    from reforward.app.read import examine
    from reforward.cli.summary import checks

    facts = examine()
    show.as_json(facts) if as_json else checks(facts)
    raise typer.Exit(0 if all(check.ok for check in facts if check.required) else 3)


@app.callback(invoke_without_command=True)
def version(show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """reforward: rewrites of a model's forward pass, measured on engines that never restart."""
    if show_version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point: errors made for people become one line and an exit code."""
    try:
        app()
    except ReforwardError as error:
        print(f"reforward: {error}", file=sys.stderr)
        log_tail = getattr(error, "log", "")
        if log_tail:
            print(log_tail, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print(
            "reforward: interrupted; everything finished is in the ledger, go on with optimize --resume",
            file=sys.stderr,
        )
        sys.exit(130)


if __name__ == "__main__":
    main()
