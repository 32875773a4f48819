"""Arguments and options that several verbs take."""

from pathlib import Path
from typing import Annotated, Literal

import typer

SubjectArg = Annotated[
    str, typer.Argument(help="smollm2, smollm2-bf16, a checkpoint folder, path/subject.py or package.module:factory")
]
FolderArg = Annotated[Path, typer.Argument(help="Folder that holds the source tree.")]
IdArg = Annotated[
    str, typer.Argument(help="An id, or the first digits (4 or more) of its hash, as log and show print it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON on stdout.")]
Traffic = Annotated[
    Path | None,
    typer.Option(help="Trace file (Azure, BurstGPT, Mooncake, ours) or a capture's folder. Default: a packaged slice."),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of every worker. Default: physical cores.")]
MinGain = Annotated[float, typer.Option(help="The gain that counts: 0.01 is 1 %.")]
MaxPairs = Annotated[int, typer.Option(help="Most pairs of launches of a confirmation; small gains need many.")]
Scale = Annotated[float | None, typer.Option(help="Multiply token counts by this. Default: chosen and printed.")]
Requests = Annotated[int, typer.Option(min=1, help="Requests in the distilled workload.")]
Numerics = Annotated[
    Literal["bit-exact", "reassociated"] | None,
    typer.Option(help="Numerics class. Default: reassociated for language models, bit-exact for modules."),
]
Resume = Annotated[bool, typer.Option(help="Go on with the last run of the same settings.")]
FromStock = Annotated[bool, typer.Option(help="Begin at the stock forward, not at the best that is known.")]
BaseUrl = Annotated[str | None, typer.Option(help="openai, anthropic: address of another server that speaks its API.")]
Parallel = Annotated[
    int | None,
    typer.Option(min=1, help="Agents at work at the same time, named in turn. Default: one of each --agent."),
]
Share = Annotated[bool, typer.Option("--share", help="Agents see what the others tried, and build on the best of all.")]
MaxCost = Annotated[str | None, typer.Option(help="What models may cost together, such as 5usd.")]
