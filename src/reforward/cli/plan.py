"""`reforward plan …`: which layout and batch limits on which GPUs, under which limits of latency, and how sure."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from typer.core import TyperGroup

from reforward.cli import show
from reforward.cli.options import Json

if TYPE_CHECKING:
    from click import Context

    from reforward.app.planning import Answer, Choice
    from reforward.plan.chart import Line
    from reforward.plan.check import Checked

NOTHING_FITS = 9
USUAL = "choose"
WIDTH = 170


class _Usual(TyperGroup):
    """A group whose usual command needs no name: `plan MODEL` is `plan choose MODEL`."""

    usual = USUAL

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
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
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Rank layouts and batch limits for MODEL. Also: plan size, plan check, plan probe (each has --help).

    Exit code 9 if nothing fits; then it says what came closest and the cheapest change that is enough.
    """
    from reforward.app.planning import Wanted
    from reforward.app.planning import plan as run

    wanted = Wanted(
        model=model, gpu=gpu, gpu_spec=gpu_spec, gpus=gpus, engine=engine, traffic=traffic, sla=sla or (), rate=rate,
        layout=layout, dtype=dtype, kv_dtype=kv_dtype, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len, calibration=calibration,
    )  # fmt: skip
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
    out: Out = None,
    as_json: Json = False,
) -> None:
    """The fewest GPUs on which MODEL carries a rate under the SLA. Exit code 9 if no number does."""
    from reforward.app.planning import Wanted
    from reforward.app.planning import size as run

    wanted = Wanted(
        model=model, gpu=gpu, gpu_spec=gpu_spec, engine=engine, traffic=traffic, sla=sla or (), rate=rate, dtype=dtype,
        kv_dtype=kv_dtype, max_model_len=max_model_len, calibration=calibration,
    )  # fmt: skip
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
    from reforward.app.plan_check import check as run
    from reforward.domain.record import canonical_json

    found = run(plan_file, results, row)
    if out is not None:
        out.write_text(canonical_json({"factors": dict(found.factors)}) + "\n", encoding="utf-8")
    show.as_json(found) if as_json else _checked(found)


def _checked(found: "Checked") -> None:
    show.console.print(f"{found.requests} requests; factors from the first {found.fitted_on}, tried on the others")
    rows = [
        [one.name, f"{1e3 * one.measured:.1f}", f"{1e3 * one.predicted:.1f}", f"{one.predicted / one.measured - 1:+.1%}",
         f"{one.calibrated / one.measured_later - 1:+.1%}"]
        for one in found.compared
    ]  # fmt: skip
    show.rows(["", "measured ms", "predicted ms", "error", "error of the later ones, with factors"], rows)
    terms = sorted(found.shares, key=lambda name: -found.shares[name])
    show.rows(["term", "share of time", "measured / predicted"],
              [[name, f"{found.shares[name]:.1%}", f"{found.factors[name]:.2f}"] for name in terms])  # fmt: skip


def _tell(answer: "Answer", out: Path | None, as_json: bool) -> None:
    if out is not None:
        _write(out, answer)
    show.as_json(answer) if as_json else _print(answer)
    if not answer.choices:
        raise typer.Exit(NOTHING_FITS)


def _write(path: Path, answer: "Answer") -> None:
    from reforward.domain.record import canonical_json
    from reforward.plan.chart import write

    if path.suffix == ".json":
        path.write_text(canonical_json(answer) + "\n", encoding="utf-8")
        return
    table = [
        dict(zip(_header(answer), _cells(place, one, answer), strict=True))
        for place, one in enumerate(answer.choices, 1)
    ]
    write(path, _title(answer), _lines(answer), table)


def _lines(answer: "Answer") -> "list[Line]":
    from reforward.plan.chart import Line

    return [
        Line(name=one.layout, users=[x for x, _ in one.curve], gpus=[y for _, y in one.curve]) for one in answer.choices
    ]


def _title(answer: "Answer") -> str:
    rate = "as many requests as the SLA allows" if answer.rate is None else f"{answer.rate:g} requests/s"
    return f"{answer.model} ({answer.dtype}; KV {answer.kv_dtype}) on {answer.gpus} x {answer.gpu}, {answer.engine}: {rate}"


def _print(answer: "Answer") -> None:
    from reforward.plan.chart import terminal

    console = show.console
    console.print(f"[bold]{escape(_title(answer))}[/]")
    console.print(f"traffic: {escape(answer.traffic)}; SLA: {escape(', '.join(answer.sla))}")
    console.print(
        f"step times: {escape(answer.times_from)}; {answer.tried} combinations replayed, {len(answer.left_out)} layouts left out"
    )
    if answer.missed is not None:
        console.print(f"[red]nothing fits[/]; closest: {escape(answer.missed.what)}: {escape(answer.missed.shortfall)}")
        remedy = answer.missed.remedy or "no single change of precision, GPUs or SLA was enough"
        console.print(f"cheapest change that fits: {escape(remedy)}")
        return
    _table(answer)
    best = answer.choices[0]
    console.print("time of a step that decodes, first row: " + _terms(best))
    console.print(terminal(_lines(answer)), markup=False)
    console.print(f"{best.replicas} x  {escape(best.launch)}", markup=False)


def _table(answer: "Answer") -> None:
    """Wider than a terminal rather than cut: every column is needed to choose."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 1))
    for name in _header(answer):
        table.add_column(name, no_wrap=True)
    for place, one in enumerate(answer.choices, 1):
        table.add_row(*map(escape, _cells(place, one, answer)))
    Console(highlight=False, soft_wrap=True, width=max(show.console.width, WIDTH)).print(table)


def _terms(choice: "Choice") -> str:
    shares = sorted(choice.terms.items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.005)


def _shown(answer: "Answer") -> list[str]:
    """Percentiles of the table: those of the SLA, and the medians."""
    wanted = [text.split(" ")[0] for text in answer.sla]
    return list(dict.fromkeys(["ttft_p50", *(name for name in wanted if name.startswith("ttft")), "itl_p50", *wanted]))


def _header(answer: "Answer") -> list[str]:
    names = [f"{name} ms" for name in _shown(answer)]
    return [
        "",
        "layout",
        "GPUs",
        "tok/s/GPU [90 %]",
        "tok/s/user",
        *names,
        "seqs",
        "tokens",
        "KV free",
        "P(SLA)",
        "binds first",
    ]


def _cells(place: int, one: "Choice", answer: "Answer") -> list[str]:
    gpus = f"{one.replicas} x {one.gpus_per_replica}"
    speed = f"{one.tok_s_gpu:.0f} [{one.tok_s_gpu_low:.0f}, {one.tok_s_gpu_high:.0f}]"
    times = [f"{1e3 * one.percentiles[name]:.1f}" if name in one.percentiles else "-" for name in _shown(answer)]
    limits = [str(one.max_num_seqs), str(one.max_num_batched_tokens)]
    sure = [f"{one.kv_headroom:.0%}", f"{one.meets_sla:.0%}", one.binding]
    return [str(place), one.layout, gpus, speed, f"{one.tok_s_user:.0f}", *times, *limits, *sure]
