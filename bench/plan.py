"""The planner against measured serving points, beside AIConfigurator 0.12.0 (the peer), and what it costs to ask.

    python bench/plan.py FOLDER    folder with silicon_sample.csv and aic_0.12.0_baseline_predictions.csv; needs reforward[plan]

G1, G2: TPOT and TTFT of aggregated serving, every (architecture, system) held out in turn (bench/plan_folds.csv).
G3: decisions made by those held-out predictions. G4: operators of a GPU from its datasheet and a few of its own measurements.
G5: coverage of 90 % intervals. G7: memory. G8: time to answer.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from card import ceiling, finish, table
from plan_learn import held_out
from plan_operators import transfer
from plan_points import feasible, planned
from plan_rows import Errors, clean, decisions, errors, load, points, summary
from reforward.plan.closed import Load
from reforward.plan.engine import Engine, Limits
from reforward.plan.estimate import Estimator
from reforward.plan.gpu import Gpu
from reforward.plan.layout import Layout
from reforward.plan.memory import fits
from reforward.plan.model import Model
from reforward.plan.residual import MOST

FOLDS = Path(__file__).with_name("plan_folds.csv")
LOGGED_BLOCKS, LOGGED_MEMORY = 2588, 25_250_627_584
"""vLLM 0.19.0, Llama-3.1-8B in bf16 on an RTX 4090: 0.9 of the memory, 256 sequences, 2,048 tokens a step (LLMServingSim, MIT)."""


def predicted(rows: pd.DataFrame, found: pd.DataFrame, groups: pd.Series, *, spread: bool) -> pd.DataFrame:
    """By id: held-out TPOT and TTFT in ms, and log half widths of their intervals."""
    names = [name for name in found if name not in ("tpot_s", "ttft_s")]
    sizes, learn = found[names].to_numpy(dtype=np.float64), rows.counts.to_numpy()
    columns: dict[str, np.ndarray] = {}
    for name in ("tpot", "ttft"):
        base = found[f"{name}_s"].to_numpy() * 1e3
        ratio = np.log(rows[f"silicon_{name}_ms"].to_numpy() / base)
        held = held_out(sizes, ratio, groups.to_numpy(), learn, MOST[name], spread=spread)
        columns |= {name: base * np.exp(held.centre), f"{name}_half": held.half}
    return pd.DataFrame(columns, index=rows.index)


def interval(rows: pd.DataFrame, ours: pd.DataFrame, name: str) -> tuple[float, float]:
    """Share of measured values within the 90 % interval, and the median half width, relative."""
    off = np.abs(np.log(rows[f"silicon_{name}_ms"] / ours[name]))
    return float((off <= ours[f"{name}_half"]).mean()), float(np.expm1(ours[f"{name}_half"]).median())


def memory(rows: pd.DataFrame) -> tuple[float, int, int]:
    """Error of the cache's blocks against an engine's log; rows that the peer calls too large, and how many fit."""
    gpu = replace(Gpu.read("l40s"), memory=LOGGED_MEMORY)
    limits = Limits(max_num_seqs=256, max_num_batched_tokens=2048, max_model_len=32768)
    blocks = fits(Model.read("Meta-Llama-3.1-8B"), gpu, Layout(), Engine(), limits).kv_blocks
    refused = rows[rows.HYBRID_err.fillna("").str.startswith("RuntimeError: OOM")]
    return blocks / LOGGED_BLOCKS - 1, len(refused), int(refused.apply(feasible, axis=1).sum())


def timing() -> tuple[float, float]:
    """Milliseconds of one estimate by a warm estimator; seconds of all layouts and 12 loads of one model by a fresh one."""
    model, engine = Model.read("Qwen3-235B-A22B-FP8"), Engine()
    gpu = Gpu.read("h200")
    layouts = [
        Layout(tp=tp, dp=dp, moe_ep=ep)
        for tp in (1, 2, 4, 8)
        for dp in (1, 2, 4, 8)
        for ep in (1, tp * dp)
        if tp * dp <= 8
    ]
    loads = Load.of(2048, 512, np.array([1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512]))
    began = time.perf_counter()
    fresh = Estimator.of(gpu, engine)
    for layout in sorted(set(layouts)):
        fresh.estimate(model, layout, Limits(max_num_seqs=1024), loads)
    sweep = time.perf_counter() - began
    took = []
    for size in (3, 5, 7, 11, 13):
        began = time.perf_counter()
        fresh.estimate(model, Layout(tp=4), Limits(), Load.of(1000 + size, 500, size))
        took.append(time.perf_counter() - began)
    return float(np.median(took)) * 1e3, sweep


def missed(rows: pd.DataFrame, ours: pd.DataFrame) -> list[list[str]]:
    """Folds by median error of TPOT, largest first, ours beside the peer's."""
    wrong = pd.DataFrame(
        {
            "fold": rows.architecture + " | " + rows.system,
            "tpot": (ours.tpot / rows.silicon_tpot_ms - 1).abs(),
            "ttft": (ours.ttft / rows.silicon_ttft_ms - 1).abs(),
            "peer_tpot": (rows.HYBRID_tpot / rows.silicon_tpot_ms - 1).abs().fillna(1),
            "peer_ttft": (rows.HYBRID_ttft / rows.silicon_ttft_ms - 1).abs().fillna(1),
        }
    )
    medians = wrong.groupby("fold").median().sort_values("tpot", ascending=False)
    counts = wrong.fold.value_counts()
    return [[name, str(counts[name]), *(f"{value:.1%}" for value in row)] for name, row in medians.iterrows()]


def _line(name: str, ours: Errors, peers: Errors | None, goal: str) -> list[str]:
    def say(one: Errors) -> str:
        return f"{one.median:.1%} / {one.mean:.1%} / {one.coverage:.1%}"

    return [name, say(ours), say(peers) if peers else "", goal]


def main() -> None:
    """All goals in one table, then the folds, then one JSON line."""
    every = load(Path(sys.argv[1]))
    chosen, candidates = clean(every), points(every)
    fixed = pd.read_csv(FOLDS).set_index("id")
    if set(fixed.index) != set(chosen.id):
        raise SystemExit(f"{FOLDS.name} does not list the rows of this folder; use the folder that it was made from")
    ceiling("measured points repeat to about 2 % in TPOT and 4 % in TTFT; no honest model does better")
    rows = every[every.id.isin(set(chosen.id) | set(candidates.id))].set_index("id")
    rows["counts"] = rows.index.isin(fixed.index)
    found = planned(rows.reset_index()).loc[rows.index]
    ours = predicted(rows, found, rows.architecture + "|" + rows.system, spread=True)
    kept, mine, plain = rows[rows.counts], ours[rows.counts], found[rows.counts]
    tpot, ttft = errors(mine.tpot, kept.silicon_tpot_ms), errors(mine.ttft, kept.silicon_ttft_ms)
    peers = {name: errors(kept[f"HYBRID_{name}"], kept[f"silicon_{name}_ms"]) for name in ("tpot", "ttft")}
    where = candidates.set_index("id", drop=False)
    answers = summary(decisions(where, ours.tpot[where.id], ours.ttft[where.id]))
    theirs = summary(decisions(where, where.HYBRID_tpot, where.HYBRID_ttft))
    covered, half = interval(kept, mine, "tpot")
    covered_ttft, half_ttft = interval(kept, mine, "ttft")
    lines = [
        _line("G1 TPOT median / mean / coverage", tpot, peers["tpot"], "8 / 15 / 98 %"),
        _line("   operators alone, nothing learned", errors(plain.tpot_s * 1e3, kept.silicon_tpot_ms), None, ""),
        _line("G2 TTFT median / mean / coverage", ttft, peers["ttft"], "20 / 30 %"),
    ]
    for name in ("architecture", "system"):
        other = predicted(rows, found, rows[name], spread=False)[rows.counts]
        lines.append(
            _line(f"   TPOT, every {name} held out", errors(other.tpot, kept.silicon_tpot_ms), peers["tpot"], "")
        )
        lines.append(
            _line(f"   TTFT, every {name} held out", errors(other.ttft, kept.silicon_ttft_ms), peers["ttft"], "")
        )
    names = ("decision_loss", "regret", "sla_broken", "no_answer")
    goals = ("12 %", "6 %", "5 %", "1.5 %")
    lines += [
        [f"G3 {name}", f"{answers[name]:.1%}", f"{theirs[name]:.1%}", goal]
        for name, goal in zip(names, goals, strict=True)
    ]
    moved = transfer()
    lines += [[f"G4 {one.name} (median / p90)", one.ours, one.datasheet, "6 / 15 %"] for one in moved]
    lines += [
        ["G5 90 % interval of TPOT: coverage, half width", f"{covered:.1%}, {half:.0%}", "none", "87–93 %, 20 %"],
        ["   of TTFT", f"{covered_ttft:.1%}, {half_ttft:.0%}", "none", ""],
    ]
    blocks, refused, fit = memory(every)
    lines += [
        ["G7 blocks of the cache against the engine's log", f"{blocks:+.1%}", "", "3 %"],
        ["G7 measured rows that the peer calls too large", f"{fit} of {refused} fit", f"0 of {refused}", "all"],
    ]
    estimate_ms, sweep_s = timing()
    lines += [
        ["G8 one estimate", f"{estimate_ms:.0f} ms", "1,200–6,000 ms", "50 ms"],
        ["G8 sweep of a model, tables read", f"{sweep_s:.1f} s", "12 s", "5 s"],
    ]
    table("The planner, held out", ["", "ours", "AIConfigurator 0.12.0", "goal"], lines)
    head = ["architecture | system", "rows", "TPOT", "TTFT", "peer TPOT", "peer TTFT"]
    table("Median error by fold, worst first", head, missed(kept, mine))
    figures = {
        **answers,
        "tpot_median": tpot.median,
        "tpot_mean": tpot.mean,
        "coverage": tpot.coverage,
        "ttft_median": ttft.median,
        "ttft_mean": ttft.mean,
        "interval_coverage": covered,
        "interval_half_width": half,
        "kv_blocks_error": blocks,
        "estimate_ms": estimate_ms,
        "sweep_s": sweep_s,
    }
    finish("plan", {name: round(value, 4) for name, value in figures.items()})


if __name__ == "__main__":
    main()
