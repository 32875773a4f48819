"""Measured serving points as the planner sees them: a model in the row's number formats, a layout, a load; times and features."""

from dataclasses import replace

import numpy as np
import pandas as pd

from reforward.domain.errors import BadInput
from reforward.plan.closed import Load, closed
from reforward.plan.dtypes import Dtypes
from reforward.plan.engine import Engine, Limits
from reforward.plan.features import features
from reforward.plan.forward import Forward
from reforward.plan.gpu import Gpu
from reforward.plan.layered import Layered
from reforward.plan.layout import Layout
from reforward.plan.memory import fits
from reforward.plan.model import Model
from reforward.plan.operators import Operators

MODELS = {
    "nvidia/DeepSeek-R1-NVFP4": "DeepSeek-R1",
    "nvidia/DeepSeek-V3.1-NVFP4": "DeepSeek-V3",
    "nvidia/Qwen3-32B-NVFP4": "Qwen3-32B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-8B-Instruct": "Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "Meta-Llama-3.1-70B",
}
LIMITS = Limits(max_num_seqs=1024, max_num_batched_tokens=8192, max_model_len=16384)
"""Rows do not say theirs; recipes allow at least the concurrency that they measure."""
MOST_MEMORY = 0.95
"""Share of the memory that recipes of large models give to the engine."""
SAME = [
    "model_path", "precision", "gemm_quant_mode", "backend", "system", "tp_size", "pp_size", "dp", "moe_tp_size", "moe_ep_size",
]  # fmt: skip
"""Rows that differ in these alone are one layout under several loads."""


def model_of(row: pd.Series) -> Model:
    """The model in the row's precision. What checkpoints leave unquantised stays 16 bits: attention beside 4-bit experts."""
    path, precision = str(row.model_path), row.precision
    model = Model.read(MODELS.get(path, path.rsplit("/", 1)[-1]))
    if model.type == "gpt_oss" or precision == "int4":
        found = model.dtypes
    elif precision == "fp8":
        plain = model.type in ("llama", "qwen3") and row.gemm_quant_mode != "fp8_block"
        kind = "fp8" if plain else "fp8_block"
        found = Dtypes(attention=kind, mlp=kind, shared=kind, experts=kind)
    elif precision == "fp4":
        found = Dtypes(attention="bf16" if model.moe else "nvfp4", mlp="nvfp4", shared="nvfp4", experts="nvfp4")
    else:
        found = Dtypes()
    narrow = row.backend == "trtllm" and precision in ("fp8", "fp4")
    return model.quantised(replace(found, kv="fp8" if narrow else "bf16"))


def layout_of(row: pd.Series, model: Model) -> Layout:
    """Rows of dense models, and some others, give no sizes of the experts' groups that can be true; then there is one."""
    tp, dp = int(row.tp_size), int(row.dp)
    ep = max(int(row.moe_ep_size), 1) if row.moe_ep_size == row.moe_ep_size else 1
    return Layout(tp=tp, pp=int(row.pp_size), dp=dp, moe_ep=ep if model.moe and (tp * dp) % ep == 0 else 1)


def planned(rows: pd.DataFrame, *, measured: bool = True) -> pd.DataFrame:
    """By id: planned `tpot_s` and `ttft_s`, and all features."""
    operators: dict[tuple[str, str], Operators] = {}
    parts = []
    for _, group in rows.groupby(SAME, dropna=False):
        first = group.iloc[0]
        model, gpu = model_of(first), Gpu.read(first.system)
        layout = layout_of(first, model)
        known = operators.setdefault((gpu.name, first.backend), Operators(gpu, first.backend, measured))
        memory = fits(model, gpu, layout, Engine(name=first.backend), LIMITS)
        in_flight = np.where(group.conc.notna(), group.conc, group.batch_size * group.dp)
        load = Load.of(group.isl.to_numpy(), group.osl.to_numpy(), np.maximum(in_flight, 1))
        state = closed(Layered(forward=Forward(model=model, layout=layout, operators=known)), memory, layout, load)
        found = features(model, gpu, layout, first.backend, memory, state, measured=known.known)
        parts.append(pd.DataFrame({"id": group.id.to_numpy(), "tpot_s": state.tpot_s, "ttft_s": state.ttft_s, **found}))
    return pd.concat(parts).set_index("id")


def feasible(row: pd.Series) -> bool:
    """Whether the planner says that a measured row's weights and one of its requests fit."""
    model = model_of(row)
    seats = int(max(row.conc if row.conc == row.conc else row.batch_size, 1))
    limits = replace(LIMITS, max_num_seqs=seats, memory_utilization=MOST_MEMORY)
    try:
        memory = fits(model, Gpu.read(row.system), layout_of(row, model), Engine(name=row.backend), limits)
    except BadInput:
        return False
    return memory.fits(row.isl + row.osl)
