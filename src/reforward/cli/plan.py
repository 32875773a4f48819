"""`reforward plan …`: which layout and batch limits on which GPUs, under which limits of latency, and how sure."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from reforward.cli import plan_show, show
from reforward.cli.options import Json

if TYPE_CHECKING:
    from reforward.app.plans.ask import Answer

NOTHING_FITS = 9
USUAL = "choose"


class _Usual(TyperGroup):
    """A group whose usual command needs no name: `plan MODEL` is `plan choose MODEL`."""

    usual = USUAL

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name in front unless another command is named."""
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else [USUAL, *args])


plan = typer.Typer(cls=_Usual, help="Plan a deployment: layout, batch limits, GPUs.")

ModelArg = Annotated[
    str, typer.Argument(help="A folder or config.json of Hugging Face, or a packaged name such as Qwen3-32B.")
]
Gpu = Annotated[
    str, typer.Option(help="A100, L40S, H100, H200, B200, B300, GB200, GB300, MI300X, MI355X, Trainium2, RTX-PRO-6000.")
]
GpuSpec = Annotated[Path | None, typer.Option(help="A TOML file that describes another GPU (docs/plan.md).")]
Engine = Annotated[Literal["vllm", "sglang", "trtllm"], typer.Option(help="The serving engine.")]
TrafficText = Annotated[
    str | None,
    typer.Option(
        "--traffic",
        help="Trace file; code, long, reasoning or agentic; or PROMPT/OUTPUT tokens. Default: a packaged slice.",
    ),
]
Sla = Annotated[
    list[str] | None,
    typer.Option(
        help="METRIC_pPERCENTILE=TIME of ttft, itl, tpot or e2e; may be repeated. Default: ttft_p90=1s itl_p90=50ms."
    ),
]
LayoutText = Annotated[str | None, typer.Option("--layout", help="This layout alone, such as 'tp4 dp2 ep8'.")]
Dtype = Annotated[
    str | None, typer.Option(help="Weights in this format: bf16, fp8, nvfp4, mxfp4, int4. Default: as the config says.")
]
KvDtype = Annotated[str | None, typer.Option(help="KV cache in this format.")]
Seats = Annotated[int | None, typer.Option("--max-num-seqs", min=1, help="Sequences of a step. Default: searched.")]
Tokens = Annotated[
    int | None, typer.Option("--max-num-batched-tokens", min=1, help="Tokens of a step. Default: searched.")
]
MaxLen = Annotated[int, typer.Option(min=0, help="Longest request of the engine. Default: that of the traffic.")]
Calibration = Annotated[Path | None, typer.Option(help="Corrections that `plan probe` or `plan check` has written.")]
Routing = Annotated[Path | None, typer.Option(help="Tokens that each expert got, a JSON list. Default: a usual skew.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write the plan as .html, .png, .svg or .json.")]


@plan.command(USUAL, hidden=True)
def choose(
    model: ModelArg,
    gpu: Gpu = "h200",
    gpus: Annotated[int, typer.Option(help="GPUs that there are.")] = 8,
    gpu_spec: GpuSpec = None,
    engine: Engine = "vllm",
    traffic: TrafficText = None,
    sla: Sla = None,
    rate: Annotated[
        str | None, typer.Option(help="Requests, such as 12/s. Default: as many as the SLA allows.")
    ] = None,
    layout: LayoutText = None,
    dtype: Dtype = None,
    kv_dtype: KvDtype = None,
    max_num_seqs: Seats = None,
    max_num_batched_tokens: Tokens = None,
    max_model_len: MaxLen = 0,
    calibration: Calibration = None,
    routing: Routing = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Rank layouts and batch limits for MODEL. Also: plan size, plan check, plan probe (each has --help).

    Exit code 9 if nothing fits; then it says what came closest and the cheapest change that is enough.
    """
    from reforward.app.plans.ask import Wanted
    from reforward.app.plans.ask import plan as run

    wanted = Wanted(
        model=model, gpu=gpu, gpu_spec=gpu_spec, gpus=gpus, engine=engine, traffic=traffic, sla=sla or (), rate=rate,
        layout=layout, dtype=dtype, kv_dtype=kv_dtype, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len, calibration=calibration, routing=routing,
    )  # fmt: skip
    plan_show.writable(out)
    _tell(run(wanted), out, as_json)


@plan.command()
def size(
    model: ModelArg,
    rate: Annotated[str, typer.Option(help="Requests, such as 40/s.")],
    gpu: Gpu = "h200",
    gpu_spec: GpuSpec = None,
    engine: Engine = "vllm",
    traffic: TrafficText = None,
    sla: Sla = None,
    dtype: Dtype = None,
    kv_dtype: KvDtype = None,
    max_model_len: MaxLen = 0,
    calibration: Calibration = None,
    routing: Routing = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """The fewest GPUs on which MODEL carries a rate under the SLA. Exit code 9 if no number does."""
    from reforward.app.plans.ask import Wanted
    from reforward.app.plans.ask import size as run

    wanted = Wanted(
        model=model, gpu=gpu, gpu_spec=gpu_spec, engine=engine, traffic=traffic, sla=sla or (), rate=rate, dtype=dtype,
        kv_dtype=kv_dtype, max_model_len=max_model_len, calibration=calibration, routing=routing,
    )  # fmt: skip
    plan_show.writable(out)
    _tell(run(wanted), out, as_json)


@plan.command()
def check(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that was written as .json.")],
    results: Annotated[
        Path, typer.Argument(help="Times of the requests of one replica, a JSON object a line (docs/plan.md).")
    ],
    row: Annotated[int, typer.Option(min=1, help="Row of the plan that was served.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the factors, for --calibration.")] = None,
    as_json: Json = False,
) -> None:
    """Predicted beside measured, and what each term of the cost model was off by."""
    from reforward.app.plans.check import check as run
    from reforward.domain.record import canonical_json

    found = run(plan_file, results, row)
    if out is not None:
        out.write_text(canonical_json({"factors": dict(found.factors)}) + "\n", encoding="utf-8")
    show.as_json(found) if as_json else plan_show.checked(found)


@plan.command()
def probe(
    gpu: Annotated[
        str | None, typer.Option(help="What this machine is: its operators are compared with the planner's.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write .toml for --gpu-spec, or (with --gpu) .json for --calibration."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Time the operators of this machine: minutes on a GPU, half a minute on a CPU."""
    from reforward.app.plans.probe import keep
    from reforward.app.plans.probe import probe as run

    found = run(gpu)
    if out is not None:
        keep(found, out)
    show.as_json(found) if as_json else plan_show.probed(found)


def _tell(answer: "Answer", out: Path | None, as_json: bool) -> None:
    if out is not None:
        plan_show.write(out, answer)
    show.as_json(answer) if as_json else plan_show.answered(answer)
    if not answer.choices:
        raise typer.Exit(NOTHING_FITS)
