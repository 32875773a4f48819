"""`reforward optimize`: the search, by passes or by agents."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reforward.app.extras import need
from reforward.app.settings import Settings
from reforward.cli import show
from reforward.cli.live import Live
from reforward.cli.options import (
    BaseUrl,
    FromStock,
    Json,
    MaxCost,
    MaxPairs,
    MinGain,
    Numerics,
    Parallel,
    Requests,
    Resume,
    Scale,
    Share,
    SubjectArg,
    Threads,
    Traffic,
)

if TYPE_CHECKING:
    from reforward.app.agents.crew import Team
    from reforward.propose.brief import Style


def optimize(
    subject: SubjectArg,
    traffic: Traffic = None,
    budget: Annotated[
        str | None, typer.Option(help="Time, such as 10m. Default 10m unless --candidates is given.")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option("--candidates", "--max-candidates", min=1, help="Candidates to screen.")
    ] = None,
    resume: Resume = False,
    from_stock: FromStock = False,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            help="Who searches instead of the passes; repeatable: openai:MODEL, anthropic:MODEL, claude-code, codex, opencode, "
            "mini-swe-agent:MODEL, command:'program {brief}'."
        ),
    ] = None,
    base_url: BaseUrl = None,
    parallel: Parallel = None,
    share: Share = False,
    brief: Annotated[
        Literal["naive", "playbook"],
        typer.Option(help="What agents are told: the bare task, or a guide to the machine too."),
    ] = "naive",
    max_cost: MaxCost = None,
    min_gain: MinGain = 0.01,
    max_pairs: MaxPairs = 16,
    numerics: Numerics = None,
    length_scale: Scale = None,
    requests: Requests = 6,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Search for a faster forward pass of SUBJECT, and prove it."""
    from reforward.app.optimize import PASSES
    from reforward.app.optimize import optimize as run
    from reforward.cli.summary import report

    settings = Settings(
        traffic=traffic,
        min_gain=min_gain,
        max_pairs=max_pairs,
        numerics=numerics,
        length_scale=length_scale,
        requests=requests,
        threads=threads,
    )
    if budget is None and candidates is None:
        budget = "10m"
    search = PASSES
    if agent:
        search = team(agent, base_url, parallel=parallel, share=share, style=brief, max_cost=max_cost).search()
    with Live(as_json=as_json) as live:
        result = run(
            subject,
            settings,
            budget=budget,
            candidates=candidates,
            resume=resume,
            from_stock=from_stock,
            search=search,
            emit=live,
        )
    show.as_json(result) if as_json else report(result)


def team(
    specs: list[str],
    base_url: str | None,
    *,
    parallel: int | None,
    share: bool,
    max_cost: str | None,
    style: "Style" = "naive",
) -> "Team":
    """The agents that `--agent` names, and how they work together."""
    need("agents")
    import math

    from reforward.app.agents.crew import Team, secret_values
    from reforward.app.agents.purse import parse_usd
    from reforward.app.agents.specs import parse_agent
    from reforward.app.config import environment
    from reforward.mcp.door import open_door

    around = environment()
    return Team(
        agents=[parse_agent(spec, around, base_url=base_url) for spec in specs],
        door=open_door,
        secrets=secret_values(around),
        parallel=parallel,
        share=share,
        style=style,
        most_usd=parse_usd(max_cost) if max_cost else math.inf,
    )
