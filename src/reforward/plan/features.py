"""What a correction may know of a configuration: sizes and shares of time. No names of models, no dates, no sources."""

import numpy as np
from numpy.typing import NDArray

from reforward.plan.closed import Closed
from reforward.plan.dtypes import nbytes
from reforward.plan.engine import ENGINES
from reforward.plan.gpu import Gpu
from reforward.plan.layout import Layout
from reforward.plan.memory import Memory
from reforward.plan.model import Model

Array = NDArray[np.float64]
SHARES = ("projections", "mlp", "experts", "decode attention", "all-reduce", "all-to-all", "small kernels", "head")
PREFILL_SHARES = ("projections", "mlp", "experts", "prefill attention", "all-reduce")


def features(
    model: Model, gpu: Gpu, layout: Layout, engine: str, memory: Memory, state: Closed, *, measured: bool
) -> dict[str, Array]:
    """By name, each of the shape of the load; sizes and seconds as logs."""
    load, like = state.load, np.ones_like(state.batch)
    flat = {
        "tp": np.log(layout.tp),
        "dp": np.log(layout.dp),
        "ep": np.log(layout.moe_ep),
        "ranks": np.log(layout.ranks),
        "bandwidth": np.log(gpu.bandwidth),
        "flops": np.log(gpu.flops["bf16"]),
        "fp4": float("fp4" in gpu.flops),
        "memory": np.log(gpu.memory),
        "scale up": np.log(gpu.scale_up),
        "weight bytes": nbytes(model.dtypes.experts if model.moe else model.dtypes.mlp),
        "attention bytes": nbytes(model.dtypes.attention),
        "cache bytes": nbytes(model.dtypes.kv),
        "layers": np.log(model.layers),
        "hidden": np.log(model.hidden),
        "experts": np.log1p(model.moe.experts if model.moe else 0),
        "top k": float(model.moe.top_k if model.moe else 0),
        "active": np.log(model.parameters(active=True)),
        "cache": np.log1p(memory.kv_bytes_per_token),
        "weights of a rank": np.log(memory.weights),
        "operators measured": float(measured),
        **{name: float(name == engine) for name in ENGINES},
    }
    found = {name: like * value for name, value in flat.items()}
    each = memory.kv_bytes_per_token * (load.prompt + load.output)
    found |= {
        "batch": np.log(state.batch),
        "waiting": np.log1p(state.waiting),
        "prompt": np.log(load.prompt),
        "output": np.log(load.output),
        "concurrency": np.log(load.concurrency),
        "decode": np.log(state.decode_s),
        "prefill": np.log(state.prefill_s),
        "tpot": np.log(state.tpot_s),
        "others": np.log(state.tpot_s / state.decode_s),
        "mixed": np.log(state.mixed_s / state.decode_s),
        "load": np.log(state.batch / load.output * state.prefill_s / state.tpot_s + 1e-3),
        "burst": np.log(state.batch * state.prefill_s),
        "queue": np.log1p(state.queue_s / state.prefill_s),
        "layer": np.log(state.decode_s / model.layers),
        "full": np.log(state.batch * each / max(memory.kv_budget, 1.0) + 1e-3),
    }
    for name in SHARES:
        found[f"share of {name}"] = state.decode_terms.get(name, 0 * like) / state.decode_s
    for name in PREFILL_SHARES:
        found[f"prefill {name}"] = state.prefill_terms.get(name, 0 * like) / state.prefill_s
    return found
