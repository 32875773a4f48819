"""How plans, probes and checks look on a terminal and in files."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from reforward.cli import show

if TYPE_CHECKING:
    from reforward.app.plans.ask import Answer, Choice
    from reforward.app.plans.probe import Found
    from reforward.plan.chart import Line
    from reforward.plan.check import Checked

WIDTH = 400


def writable(path: Path | None) -> None:
    """Before minutes are spent: `BadInput` if a plan cannot be written by that name."""
    if path is not None and path.suffix != ".json":
        from reforward.plan.chart import check_name

        check_name(path)


def write(path: Path, answer: "Answer") -> None:
    """A plan as .json, .html, .png or .svg."""
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


def answered(answer: "Answer") -> None:
    """The table, the plot and the command; or what came closest."""
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
    _wide(_header(answer), [_cells(place, one, answer) for place, one in enumerate(answer.choices, 1)])
    best = answer.choices[0]
    console.print("time of a step that decodes, first row: " + _terms(best))
    console.print(terminal(_lines(answer)), markup=False)
    console.print(f"{best.replicas} x  {best.launch}" if best.replicas > 1 else best.launch, markup=False)
    if any("P(" in one.layout for one in answer.choices):
        console.print("rows with P (prompts) and D (answers) have not been checked against a measured deployment")


def _wide(header: list[str], rows: list[list[str]]) -> None:
    """A table that is wider than a terminal rather than cut: every column is needed to choose."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 1))
    for name in header:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
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
        "tok/s/GPU",
        "most [90 %]",
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
    speed = [f"{one.tok_s_gpu:.0f}", f"[{one.tok_s_gpu_low:.0f}, {one.tok_s_gpu_high:.0f}]"]
    times = [f"{1e3 * one.percentiles[name]:.1f}" if name in one.percentiles else "-" for name in _shown(answer)]
    limits = [str(one.max_num_seqs), str(one.max_num_batched_tokens)]
    sure = [f"{one.kv_headroom:.0%}", f"{one.meets_sla:.0%}", one.binding]
    return [str(place), one.layout, gpus, *speed, f"{one.tok_s_user:.0f}", *times, *limits, *sure]


def probed(found: "Found") -> None:
    """Every operator, and each kind of them against the planner."""
    rows = [
        [row.family, " ".join(f"{name}={value:g}" for name, value in row.sizes.items()), f"{1e6 * row.seconds:.1f}",
         f"{row.flops / row.seconds / 1e12:.3g}" if row.flops else "-",
         f"{row.moved / row.seconds / 1e9:.3g}" if row.moved else "-"]
        for row in found.probed.rows
    ]  # fmt: skip
    show.console.print(f"{found.probed.count} x {escape(found.probed.device)}")
    _wide(["operator", "sizes", "us", "Tflop/s", "GB/s"], rows)
    if found.families:
        cells = [[one.name, str(one.shapes), f"{one.factor:.2f}", f"{one.off:.0%}"] for one in found.families]
        _wide(["operator", "shapes", "measured / planned", "off beyond that, median"], cells)


def checked(found: "Checked") -> None:
    """Percentiles and terms."""
    show.console.print(f"{found.requests} requests; factors from the first {found.fitted_on}, tried on the others")
    rows = [
        [one.name, f"{1e3 * one.measured:.1f}", f"{1e3 * one.predicted:.1f}", f"{one.predicted / one.measured - 1:+.1%}",
         f"{one.calibrated / one.measured_later - 1:+.1%}"]
        for one in found.compared
    ]  # fmt: skip
    _wide(["", "measured ms", "predicted ms", "error", "error of the later ones, with factors"], rows)
    terms = sorted(found.shares, key=lambda name: -found.shares[name])
    _wide(["term", "share of time", "measured / predicted"],
              [[name, f"{found.shares[name]:.1%}", f"{found.factors[name]:.2f}"] for name in terms])  # fmt: skip
