"""Measured serving points and questions about them: which rows count, which belong together, which configuration to pick.

The rows are `silicon_sample.csv` of aiconfigurator-core 0.12.0 (Apache-2.0, NVIDIA), most of them from InferenceX (Apache-2.0,
SemiAnalysis), joined with what the peer, AIConfigurator 0.12.0, predicts for each. A refusal to predict is an error of 100 %.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

SAME_ARCHITECTURE = {
    "nvidia/DeepSeek-R1-NVFP4": "deepseek_v3",
    "deepseek-ai/DeepSeek-R1": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek_v3",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
}
"""Names that share measurements to the last digit: a fold by name would leak."""
MOST_SPREAD = 1.5
"""Ratio of the largest to the smallest TPOT among rows of the same key; above it one of them hides a setting (speculation)."""
GROUP = ["model_path", "system", "backend", "precision", "isl", "osl"]
LAYOUT = ["tp_size", "pp_size", "dp", "moe_tp_size", "moe_ep_size"]
LIMITS_MS = (10, 20, 30, 50, 100)


def load(folder: Path) -> pd.DataFrame:
    """All aggregated rows. Columns of the peer: `HYBRID_tpot`, `HYBRID_ttft`, empty where it refuses."""
    rows = pd.read_csv(folder / "silicon_sample.csv", low_memory=False)
    peer = pd.read_csv(folder / "aic_0.12.0_baseline_predictions.csv", low_memory=False).drop(columns="mode")
    rows = rows.merge(peer, on="id", validate="1:1")
    rows["architecture"] = rows.model_path.map(SAME_ARCHITECTURE).fillna(rows.model_path)
    rows["dp"] = rows.attention_dp_size.fillna(1).clip(lower=1)
    return rows[rows["mode"] == "agg"].copy()


def clean(rows: pd.DataFrame) -> pd.DataFrame:
    """No exact duplicate, no contradictory twin, one row per measurement, no impossible layout."""
    rows = rows[~rows.exact_dup & (rows.tpot_spread_same_key <= MOST_SPREAD)]
    measured = ["architecture", "system", "backend", "isl", "osl", "conc", "silicon_ttft_ms", "silicon_tpot_ms"]
    rows = rows.drop_duplicates(measured)
    impossible = rows.HYBRID_err.fillna("").str.contains("should be divisible|width mismatch|ZeroDivision")
    return rows[~impossible]


def points(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that a planner may choose among: the concurrency is known; of equal configurations the newest."""
    rows = rows[rows.conc.notna()]
    rows = rows[(rows.dp <= 1) | (rows.conc == rows.batch_size * rows.dp)].copy()
    rows["layout"] = rows[LAYOUT].astype(str).agg("/".join, axis=1)
    rows = rows.sort_values(["measured", "id"], kind="stable", na_position="first")
    return rows.drop_duplicates([*GROUP, "layout", "conc"], keep="last")


def throughput(rows: pd.DataFrame, ttft_ms: pd.Series, tpot_ms: pd.Series) -> pd.Series:
    """Output tokens per second and GPU of a closed loop at the row's concurrency."""
    seconds = (ttft_ms + tpot_ms * (rows.osl - 1)) / 1000
    return rows.conc * rows.osl / seconds / (rows.tp_size * rows.pp_size * rows.dp)


@dataclass(frozen=True)
class Errors:
    """Relative errors of one quantity; a refusal counts as 1."""

    median: float
    mean: float
    coverage: float


def errors(predicted: pd.Series, measured: pd.Series) -> Errors:
    """|predicted / measured - 1|."""
    error = (predicted / measured - 1).abs().fillna(1.0)
    return Errors(float(error.median()), float(error.mean()), float(predicted.notna().mean()))


def decisions(rows: pd.DataFrame, tpot_ms: pd.Series, ttft_ms: pd.Series) -> pd.DataFrame:
    """What following these predictions comes to: a row per group and limit of TPOT that some measured point meets.

    Picked is the point with the highest predicted throughput among those predicted within the limit. `state`: ok, broken (the
    pick measures above the limit) or none; `share`: measured throughput of the pick over the best feasible point's, if ok.
    """
    table = rows.assign(
        tpot=tpot_ms,
        rate=throughput(rows, rows.silicon_ttft_ms, rows.silicon_tpot_ms),
        promised=throughput(rows, ttft_ms, tpot_ms),
    )
    return pd.DataFrame([answer for _, group in table.groupby(GROUP, dropna=False) for answer in _answers(group)])


def _answers(group: pd.DataFrame) -> Iterator[dict[str, object]]:
    if group.layout.nunique() < 2 or len(group) < 6:
        return
    for limit in LIMITS_MS:
        feasible = group[group.silicon_tpot_ms <= limit]
        if feasible.empty:
            continue
        allowed = group[group.tpot <= limit]
        state, share, pick = "none", np.nan, ""
        if not allowed.empty:
            chosen = allowed.loc[allowed.promised.idxmax()]
            pick, state = chosen.id, "broken" if chosen.silicon_tpot_ms > limit else "ok"
            share = chosen.rate / feasible.rate.max() if state == "ok" else np.nan
        yield {**group.iloc[0][GROUP].to_dict(), "limit": limit, "state": state, "share": share, "pick": pick}


def summary(answers: pd.DataFrame) -> dict[str, float]:
    """Loss (broken and none count 1), regret over unbroken picks, shares of broken limits and of no answer."""
    return {
        "decision_loss": 1 - float(answers.share.fillna(0).mean()),
        "regret": 1 - float(answers.share.mean()),
        "sla_broken": float((answers.state == "broken").mean()),
        "no_answer": float((answers.state == "none").mean()),
    }
