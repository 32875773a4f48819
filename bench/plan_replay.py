"""G6: the scheduler's replay against per-request times of real vLLM servers, percentiles of TTFT and of per-request TPOT.

    python bench/plan_replay.py DATA        DATA: folder with one folder a set (requests.jsonl, meta.json)

The sets are LLMServingSim's `bench/examples/*/vllm` (casys-kaist/LLMServingSim at 5daddb21a545, MIT): 300 requests each,
vLLM 0.19, ShareGPT lengths, ten arrivals a second. Fitted: one factor for each of the terms of a step, from the times of
the first 100 requests; scored on the last 200, of which arrivals and lengths are all that is given. Blind: step times from
the datasheet and the operator tables alone. The peer's column is what LLMServingSim 2.0 says of itself (`summary.txt`), with
a profile of the same GPU, on all 300.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from card import ceiling, finish, table
from reforward.plan.affine import Affine
from reforward.plan.calibrate import Measured, calibrate, clock_of
from reforward.plan.engine import Engine, Limits
from reforward.plan.forward import Forward
from reforward.plan.gpu import Gpu
from reforward.plan.layered import Layered
from reforward.plan.layout import Layout
from reforward.plan.memory import fits
from reforward.plan.model import Model
from reforward.plan.operators import Operators
from reforward.plan.replay import Replayed, Schedule, replay
from reforward.plan.traffic import Traffic

FITTED_ON = 100
PERCENTILES = (50, 90, 99)
GOALS = {"ttft": (0.08, 0.12, 0.18), "tpot": (0.05, 0.07, 0.10)}
RTX4090 = Gpu(
    name="rtx4090", title="GeForce RTX 4090", vendor="nvidia", memory=25250627584, bandwidth=1.008e12, link=32e9,
    flops={"bf16": 165.2e12, "fp8": 330.3e12}, scale_out=3e9, scale_up=8, node=8, topology="pcie",
)  # fmt: skip
"""NVIDIA Ada GPU architecture whitepaper, appendix A: dense peaks, fp32 accumulation."""
SETS = {
    "RTX4090_Llama-3.1-8B": ("Meta-Llama-3.1-8B", RTX4090, "tp1"),
    "RTXPRO6000_Llama-3.1-8B": ("Meta-Llama-3.1-8B", None, "tp1"),
    "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507": ("Qwen3-30B-A3B", None, "tp1 dp2 ep2"),
    "RTXPRO6000_Qwen3-32B": ("Qwen3-32B", None, "tp2"),
}


@dataclass(frozen=True)
class Set:
    """One measured server."""

    name: str
    model: Model
    gpu: Gpu
    layout: Layout
    schedule: Schedule
    traffic: Traffic
    measured: Measured
    peer: dict[str, tuple[float, ...]]


def read(folder: Path) -> Set:
    """Arrivals are wall clock and the rest is the engine's: they are aligned at the smallest wait."""
    name, gpu, words = SETS[folder.name]
    model, gpu, layout = Model.read(name), gpu or Gpu.read("rtx_pro_6000"), Layout.parse(words)
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    keys = ("arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
    times = np.array([[row[key] for key in keys] for row in rows])
    times[:, 0] -= times[0, 0]
    times[:, 1:] -= (times[:, 1] - times[:, 0]).min()
    meta = json.loads((folder / "meta.json").read_text())
    limits = Limits(**{key: meta["engine_kwargs"][key] for key in ("max_num_seqs", "max_num_batched_tokens")})
    logged = meta.get("kv_cache", {}).get("num_gpu_blocks")
    blocks = logged or fits(model, gpu, layout, Engine(name="vllm"), limits).kv_blocks
    traffic = Traffic(
        arrival=times[:, 0],
        prompt=np.array([row["input_toks"] for row in rows]),
        output=np.array([row["output_toks"] for row in rows]),
        source=folder.name,
    )
    schedule = Schedule(limits=limits, blocks=blocks, ranks=layout.dp, overlap=1)
    measured = Measured(scheduled=times[:, 2], first=times[:, 3], last=times[:, 4])
    return Set(folder.name, model, gpu, layout, schedule, traffic, measured, peer(folder))


def peer(folder: Path) -> dict[str, tuple[float, ...]]:
    """Errors that LLMServingSim's own summary states, as fractions, by metric."""
    text = (folder / "summary.txt").read_text()
    return {
        metric: tuple(
            float(re.search(rf"{metric.upper()} {name}\s.*?([-+][\d.]+)%", text)[1]) / 100
            for name in ("Median", "P90", "P99")
        )
        for metric in GOALS
    }


def errors(one: Set, run: Replayed, rows: slice) -> dict[str, tuple[float, ...]]:
    """Predicted over measured percentile, minus 1, by metric."""
    tokens = one.traffic.output[rows] - 1
    pairs = {
        "ttft": (run.ttft[rows], (one.measured.first - one.traffic.arrival)[rows]),
        "tpot": ((run.last - run.first)[rows] / tokens, (one.measured.last - one.measured.first)[rows] / tokens),
    }
    return {
        metric: tuple(float(np.percentile(ours, p) / np.percentile(real, p) - 1) for p in PERCENTILES)
        for metric, (ours, real) in pairs.items()
    }


def fitted(one: Set) -> dict[str, tuple[float, ...]]:
    """Errors on the requests that nothing was fitted to."""
    base = Affine.guess(one.model, one.gpu, one.layout)
    steps = calibrate(base, one.schedule, one.traffic, one.measured, FITTED_ON)
    run = replay(one.traffic, one.schedule, clock_of(steps, one.schedule, one.traffic))
    return errors(one, run, slice(FITTED_ON, None))


def blind(one: Set) -> dict[str, tuple[float, ...]] | None:
    """Errors on all requests with step times that nothing served went into; None where no operator was measured."""
    operators = Operators(one.gpu, "vllm")
    if not operators.known:
        return None
    steps = Layered(forward=Forward(model=one.model, layout=one.layout, operators=operators))
    run = replay(one.traffic, one.schedule, clock_of(steps, one.schedule, one.traffic))
    return errors(one, run, slice(None))


def words(found: tuple[float, ...] | None) -> str:
    """`-1.2 +0.3 +4.0`, in per cent."""
    return "-" if found is None else " ".join(f"{100 * one:+.1f}" for one in found)


def main() -> None:
    """Print the table and the JSON line."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sets = [read(Path(sys.argv[1]) / name) for name in SETS]
    ceiling("a replay with the true time of every step would be off only by what the scheduler's model leaves out")
    figures: dict[str, dict[str, dict[str, tuple[float, ...]] | None]] = {}
    for one in sets:
        figures[one.name] = {"fitted": fitted(one), "blind_all_300": blind(one), "peer_all_300": one.peer}
    rows = [
        [name, metric, *(words(found and found[metric]) for found in kinds.values())]
        for name, kinds in figures.items()
        for metric in GOALS
    ]
    table(
        "error of P50 P90 P99, %",
        ("set", "metric", "fitted on 100, scored on 200", "blind, all 300", "peer's own, all 300"),
        rows,
    )
    met = {
        metric: all(
            abs(error) <= goal
            for kinds in figures.values()
            for error, goal in zip(kinds["fitted"][metric], goals, strict=True)
        )
        for metric, goals in GOALS.items()
    }
    finish("plan_replay", {"goals_met": met, "sets": figures})


if __name__ == "__main__":
    main()
