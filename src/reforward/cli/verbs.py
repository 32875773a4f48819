"""The verbs. Each parses, calls one app function and prints its facts."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from reforward import __version__
from reforward.app.settings import Settings
from reforward.cli import show
from reforward.cli.ask import EXIT_BY_RULING, ask
from reforward.cli.capture import capture
from reforward.cli.door import mcp
from reforward.cli.experiment import experiment
from reforward.cli.judge import judge
from reforward.cli.live import Live
from reforward.cli.optimize import optimize
from reforward.cli.options import (
    FolderArg,
    IdArg,
    Json,
    MaxPairs,
    MinGain,
    Numerics,
    Requests,
    Scale,
    SubjectArg,
    Threads,
    Traffic,
)
from reforward.cli.plan import plan
from reforward.cli.serve import deploy, deployments, rollback, serve, status
from reforward.cli.trace import trace
from reforward.cli.up import pause, resume, up

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(trace, name="trace")
app.add_typer(judge, name="judge")
app.add_typer(experiment, name="experiment")
app.add_typer(plan, name="plan")

EPILOG = """Exit codes: 0 done (submit: accepted), 1 internal error or a selftest that does not hold, 2 bad input,
3 this machine lacks something, 4 engine lost, 5 ledger corrupt, 6 the candidate of a measure failed, 7 submit: rejected
(for failing, too), 8 submit: unsure, trace drift: an alarm, 130 interrupted."""
WORDS = """Words of a verdict. Fast tier: promising (worth the slow tier). Slow tier: faster (admitted). Both: no-gain (less than
the gain that counts), undecided (the interval lies on both sides of it when the session ends), slower; failed (the code
raised, died or took too long); numerics (outputs outside the contract), void (the outputs could not tell work from none,
so nothing follows), engagement (other code ran), impossible (faster than memory can be read). Checks: `typical` and
`worst` are the candidate's error against float64 over the stock forward's own; `null candidate` counts groups of outputs
in which an answer made without work was caught; `bits` is the share of elements that differ from the stock forward's."""


@app.command()
def demo(budget: Annotated[str, typer.Option(help="Time for the loop.")] = "4m", as_json: Json = False) -> None:
    """The whole loop on SmolLM2-135M, in a few minutes. Real weights, a real trace."""
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


app.command()(optimize)


@app.command()
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
    """Time a source tree against the incumbent, without a verdict."""
    from reforward.app.submit import measure as run

    settings = Settings(traffic=traffic, length_scale=length_scale, requests=requests, threads=threads)
    with Live(as_json=as_json) as live:
        facts = run(subject, folder, tier, settings, emit=live)
    show.as_json(facts) if as_json else show.session(facts)


@app.command()
def submit(
    subject: SubjectArg,
    folder: FolderArg,
    reason: Annotated[str, typer.Option(help="Why it should be faster; kept with the proposal.")] = "submitted by hand",
    traffic: Traffic = None,
    min_gain: MinGain = 0.01,
    max_pairs: MaxPairs = 16,
    numerics: Numerics = None,
    length_scale: Scale = None,
    requests: Requests = 6,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """One source tree through both tiers to a verdict.

    The incumbent itself is refused, with where its evidence is.
    """
    from reforward.app.submit import submit as run

    settings = Settings(
        traffic=traffic,
        min_gain=min_gain,
        max_pairs=max_pairs,
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
def log(
    limit: Annotated[int, typer.Option(min=1, help="Newest rows to print.")] = 30,
    agents: Annotated[bool, typer.Option("--agents", help="One line per attempt of an agent instead.")] = False,
    as_json: Json = False,
) -> None:
    """What was tried: one line per verdict or skip, newest last."""
    from reforward.app.agents.attempts import tallies
    from reforward.app.read import history
    from reforward.cli.summary import attempt_rows, log_rows

    if agents:
        attempts = tallies(limit)
        show.as_json(attempts) if as_json else attempt_rows(attempts)
        return
    lines = history(limit)
    show.as_json(lines) if as_json else log_rows(lines)


@app.command("show")
def show_(record: IdArg, as_json: Json = False) -> None:
    """One record and what refers to it: verdicts, failures, turns."""
    from reforward.app.read import describe
    from reforward.cli.summary import description

    facts = describe(record)
    show.as_json(facts) if as_json else description(facts)


@app.command()
def diff(
    a: IdArg, b: Annotated[str | None, typer.Argument(help="Default: what A was made from or compared with.")] = None
) -> None:
    """Unified diff between two candidates.

    Without B: from the parent of a candidate, or from what a verdict compared it with.
    """
    from reforward.app.read import difference

    typer.echo(difference(a, b), nl=False)


@app.command()
def best(subject: SubjectArg, as_json: Json = False) -> None:
    """The best accepted candidate of SUBJECT on each target."""
    from reforward.app.read import best as run
    from reforward.cli.summary import best_rows

    facts = run(subject)
    show.as_json(facts) if as_json else best_rows(facts)


@app.command()
def export(record: IdArg, folder: Annotated[Path, typer.Argument(help="A new or empty folder.")]) -> None:
    """Write a candidate as a source tree with its evidence.

    The evidence stands in EVIDENCE.md and on top of the entry file; of a candidate that no verdict of the slow tier accepts,
    it says UNPROVEN.
    """
    from reforward.app.evidence import UNPROVEN
    from reforward.app.read import export as run
    from reforward.app.trees import EVIDENCE

    for path in run(record, folder):
        show.console.print(str(path))
    if UNPROVEN in (folder / EVIDENCE).read_text():
        show.errors.print(UNPROVEN)


@app.command()
def verify() -> None:
    """Derive every id in the ledger again."""
    from reforward.app.read import verify as run

    show.console.print(f"{run()} records and blobs match their ids")


@app.command()
def doctor(as_json: Json = False) -> None:
    """What this machine has and lacks, and what would remedy it."""
    from reforward.app.read import examine
    from reforward.cli.summary import checks

    facts = examine()
    show.as_json(facts) if as_json else checks(facts)
    raise typer.Exit(0 if all(check.ok for check in facts if check.required) else 3)


app.command()(mcp)
app.command()(ask)
app.command()(capture)
for verb in (serve, up, status, deployments, deploy, rollback, pause, resume):
    app.command()(verb)


@app.callback(invoke_without_command=True)
def version(show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """reforward: rewrites of a model's forward pass, measured on engines that never restart."""
    if show_version:
        typer.echo(__version__)
        raise typer.Exit


for command in (
    *app.registered_commands,
    *trace.registered_commands,
    *judge.registered_commands,
    *experiment.registered_commands,
):
    command.epilog = f"{WORDS}\n\n{EPILOG}" if command.name == "show" else EPILOG
