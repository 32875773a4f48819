"""`reforward judge`: what the judge itself is worth on this machine."""

from typing import Annotated

import typer
from rich.markup import escape

from reforward.app.settings import Settings
from reforward.app.trust.outcomes import Outcome, Report
from reforward.cli import show
from reforward.cli.live import Live
from reforward.cli.options import Json, Requests, SubjectArg
from reforward.domain.subject import Host, Tier

judge = typer.Typer(no_args_is_help=True, help="Try the judge on candidates that cheat and on honest ones.")


@judge.callback()
def group() -> None:
    """Try the judge on candidates that cheat and on honest ones."""


@judge.command()
def selftest(
    host: Annotated[Host | None, typer.Option(help="Cases of one host only: lm or module.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every case, rulings on gains, identical arms; up to half an hour.")
    ] = False,
    only: Annotated[
        str, typer.Option(help="Only cases with this text in their name, or that need this: gpu, compiler.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Judge the corpus of hostile and honest candidates on tiny subjects. Exit code 0 if every expectation holds."""
    from reforward.app.trust.selftest import selftest as run

    report = run(host=host, full=full, only=only, emit=_silent if as_json else _line)
    show.as_json({"report": report, "headline": report.headline()}) if as_json else _summary(report)
    raise typer.Exit(0 if report.held else 1)


@judge.command()
def rates(
    subject: SubjectArg,
    tier: Annotated[Tier, typer.Option(help="fast or slow.")] = "fast",
    sessions: Annotated[
        int, typer.Option(help="How many there shall be; the same command goes on where it ended.")
    ] = 30,
    slowdown: Annotated[
        float, typer.Option(help="Slow the incumbent down on purpose: 0.05 for 5 %. 0: identical code.")
    ] = 0.0,
    length_scale: Annotated[float, typer.Option(help="Multiply token counts by this.")] = 1 / 16,
    requests: Requests = 4,
    as_json: Json = False,
) -> None:
    """How often the judge is wrong here: sessions of identical code, or of a gain of known size. Kept in the ledger."""
    from reforward.app.trust.rates import rates as run

    settings = Settings(length_scale=length_scale, requests=requests)
    with Live(as_json=as_json) as live:
        found = run(subject, settings, tier=tier, sessions=sessions, slowdown=slowdown, emit=live)
    show.as_json(found) if as_json else show.rates(found)


def _silent(outcome: Outcome) -> None:
    """JSON comes at the end, in one document."""


def _line(outcome: Outcome) -> None:
    mark = "[green]ok[/]  " if outcome.held else "[red]FAIL[/]"
    mark = "[dim]skip[/]" if outcome.ruling == "skipped" else mark
    show.console.print(
        f"{mark} {outcome.expected:<9} {f'{outcome.host}/{outcome.case}':<44} {outcome.ruling:<7} {outcome.reason:<15} "
        f"{outcome.layer:<8} {outcome.seconds:5.1f} s"
    )
    if not outcome.held:
        show.console.print(f"       [dim]{escape(outcome.about)} {escape(outcome.detail)}[/]")


def _summary(report: Report) -> None:
    for line in report.not_run:
        show.console.print(f"not run: {escape(line)}")
    show.console.print(f"{report.seconds:.0f} s")
    show.console.print(report.headline())
