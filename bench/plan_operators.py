"""Operators of a GPU that was never profiled: from its datasheet, other GPUs' tables, and a few hundred of its own measurements.

What a ten-minute micro-benchmark brings stands for `MEASURED` shapes of each operator, drawn at random from the GPU's own
table; all other shapes that take longer than 20 µs are predicted. Siblings with the same chip are no donors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge

from reforward.plan.fitted import make
from reforward.plan.gpu import Gpu
from reforward.plan.operators import Operators
from reforward.plan.routing import Routing

Array = NDArray[np.float64]
MEASURED = 300
SHORTEST_S = 20e-6
DONORS = {"h200": ("a100", "l40s", "b200", "rtx_pro_6000"), "b200": ("a100", "l40s", "h100", "h200", "rtx_pro_6000")}
"""Held-out GPU: GPUs of other chips (H100 has the chip of H200)."""
KINDS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("gemm", ("bfloat16",)),
    ("gemm", ("fp8",)),
    ("decode", (128, "bfloat16", 0)),
    ("prefill", (128, "bfloat16", 0)),
    ("moe", ("power_law_1.2", "fp8_block")),
)
ENGINE = "vllm"


@dataclass(frozen=True)
class Moved:
    """Errors on shapes of a GPU that were not measured: `median / p90`."""

    name: str
    ours: str
    datasheet: str


def _roofline(kind: str, key: tuple[object, ...], on: Operators) -> Callable[[Array], Array]:
    def moe(sizes: Array) -> Array:
        found = np.empty(len(sizes))
        fixed, which = np.unique(sizes[:, [3, 4, 6]], axis=0, return_inverse=True)
        for row, (count, top_k, ep) in enumerate(fixed):
            mine = which.reshape(-1) == row
            tokens, hidden, width, _, _, tp, _ = sizes[mine].T
            routing = Routing.zipf(int(count), 1.2)
            found[mine] = on.experts_roofline("fp8_block", tokens, hidden, width, routing, int(top_k), tp, int(ep))
        return found

    return {
        "gemm": lambda sizes: on.gemm_roofline("fp8" if key[0] == "fp8" else "bf16", *sizes.T),
        "decode": lambda sizes: on.decode_roofline(*sizes.T, 128, "bf16", 0),
        "prefill": lambda sizes: on.prefill_roofline(*sizes.T, 128, 0),
        "moe": moe,
    }[kind]


def _one(gpu: str, kind: str, key: tuple[object, ...], rng: np.random.Generator) -> Moved | None:
    here = Operators(Gpu.read(gpu), ENGINE)
    own = make(here, kind, *key)
    if own is None:
        return None
    sizes = 2.0 ** (own.tree.data / own.weights)
    roofline = _roofline(kind, key, here)(sizes)
    truth = own.ratios
    columns = [np.log2(sizes), np.log(roofline)[:, None]]
    for donor in DONORS[gpu]:
        there = Operators(Gpu.read(donor), ENGINE)
        surface = make(there, kind, *key)
        if surface is not None:
            at = _roofline(kind, key, there)(sizes)
            columns.append(np.log(surface.seconds(sizes, at) / at)[:, None])
    features = np.concatenate(columns, axis=1)
    sample = rng.choice(len(sizes), size=min(MEASURED, len(sizes) // 2), replace=False)
    line = Ridge(1.0).fit(features[sample], truth[sample])
    rest = truth[sample] - line.predict(features[sample])
    trees = ExtraTreesRegressor(200, min_samples_leaf=2, max_features=0.5, random_state=0).fit(features[sample], rest)
    judged = (roofline * np.exp(truth) > SHORTEST_S) & ~np.isin(np.arange(len(sizes)), sample)
    guess = line.predict(features[judged]) + trees.predict(features[judged])
    name = f"{gpu}: {kind}{' ' + str(key[0]) if kind == 'gemm' else ''}"
    return Moved(name, _say(np.expm1(guess - truth[judged])), _say(np.expm1(-truth[judged])))


def _say(errors: Array) -> str:
    size = np.abs(errors)
    return f"{np.median(size):.1%} / {np.percentile(size, 90):.1%}"


def transfer() -> list[Moved]:
    """Every held-out GPU and operator that there are tables for."""
    rng = np.random.default_rng(0)
    found = (_one(gpu, kind, key, rng) for gpu in DONORS for kind, key in KINDS)
    return [one for one in found if one is not None]
