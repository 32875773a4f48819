"""`reforward experiment`: comparisons of ways to search."""

from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from reforward.app.settings import Settings
from reforward.cli import show
from reforward.cli.live import Live
from reforward.cli.optimize import team
from reforward.cli.options import BaseUrl, Json, MaxCost, MinGain, Parallel, Requests, Scale, Share, SubjectArg, Threads
from reforward.domain.errors import BadInput
from reforward.domain.record import short

if TYPE_CHECKING:
    from reforward.app.agents.experiment import Experiment
    from reforward.propose.brief import Style

experiment = typer.Typer(no_args_is_help=True, help="Compare ways to search.")


@experiment.callback()
def group() -> None:
    """Compare ways to search."""


@experiment.command()
def agents(
    subject: SubjectArg,
    agent: Annotated[list[str], typer.Option(help="Who works in both arms, as for optimize; repeatable.")],
    arms: Annotated[str, typer.Option(help="Two ways to brief them.")] = "naive,playbook",
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each arm; two or more give an interval.")] = 3,
    budget: Annotated[str, typer.Option(help="Time of each run, such as 10m.")] = "10m",
    max_cost: MaxCost = None,
    base_url: BaseUrl = None,
    parallel: Parallel = None,
    share: Share = False,
    min_gain: MinGain = 0.01,
    length_scale: Scale = None,
    requests: Requests = 6,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Brief the same agents in two ways, with the same budget on the same engine, in random order; what each way gains.

    Every run begins at the stock forward. What is accepted is accepted: it shares the error budget of all runs.
    """
    from reforward.app.agents.experiment import experiment as run

    settings = Settings(min_gain=min_gain, length_scale=length_scale, requests=requests, threads=threads)
    searches = {
        arm: team(agent, base_url, parallel=parallel, share=share, style=_style(arm), max_cost=max_cost).search()
        for arm in arms.split(",")
    }
    with Live(as_json=as_json) as live:
        facts = run(subject, settings, searches, budget=budget, repeats=repeats, emit=live)
    show.as_json(facts) if as_json else _table(facts)


def _style(arm: str) -> "Style":
    from reforward.propose.brief import Style

    if arm not in get_args(Style):
        raise BadInput(f"--arms: {arm!r} is no way to brief; there are {' and '.join(get_args(Style))}")
    return cast("Style", arm)


def _table(facts: "Experiment") -> None:
    header = [
        "repeat",
        "place",
        "arm",
        "gain over stock",
        "screened",
        "accepted",
        "tokens",
        "usd",
        "engine busy",
        "run",
    ]
    lines = [
        [
            str(trial.repeat + 1),
            str(trial.place + 1),
            trial.arm,
            f"{trial.gain:+.1%}",
            str(trial.screened),
            str(trial.accepted),
            str(trial.tokens or "-"),
            "-" if trial.usd is None else f"{trial.usd:.3g}",
            f"{trial.busy_share:.0%}",
            short(trial.run),
        ]
        for trial in facts.trials
    ]
    show.rows(header, lines)
    first, second = facts.arms
    found = facts.difference
    if found.low is None or found.high is None:
        show.console.print(
            f"{second} against {first}: {found.mid:+.1%}; repeats that do not vary have no interval: use more, or longer ones"
        )
        return
    show.console.print(
        f"{second} against {first}: {found.mid:+.1%} [{found.low:+.1%}, {found.high:+.1%}] "
        "(forwards found, in speed; 95 % interval, paired by repeat)"
    )
