"""Surfaces of operators, from measured tables: which table, which columns are sizes, and which sizes must be near."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reforward.plan import tables
from reforward.plan.routing import Routing
from reforward.plan.surface import Surface

if TYPE_CHECKING:
    from reforward.plan.operators import Operators

Array = NDArray[np.float64]
FEWEST = 8
"""Rows below which a table is no help."""
OURS = {"bfloat16": "bf16", "int4_wo": "int4", "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4"}
"""Number formats that the tables call otherwise."""
INSTEAD_OF_GEMM = {
    "w4a16_mxfp4": ("nvfp4", "bfloat16"),
    "int4_wo": ("int4_wo", "bfloat16"),
    "fp8": ("fp8", "fp8_block"),
}
INSTEAD_OF_EXPERTS: dict[str, tuple[str, ...]] = {
    "w4a16_mxfp4": ("w4a16_mxfp4", "w4a8_mxfp4_mxfp8", "nvfp4", "int4_wo"),
    "int4_wo": ("int4_wo", "w4a16_mxfp4"),
    "fp8": ("fp8", "fp8_block"),
    "fp8_block": ("fp8_block", "fp8"),
}
"""Formats to try in turn where an engine has no kernel of the wanted one."""
SKEWS = {0.0: "balanced", 1.01: "power_law_1.01", 1.2: "power_law_1.2"}
"""Zipf exponents of the routing that experts were measured under."""


def make(operators: "Operators", kind: str, *key: Any) -> Surface | None:
    """The surface of this kind, or None if there is no table of it, or too little in it."""
    return MAKERS[kind](operators, *key)


def _rows(
    operators: "Operators",
    family: str,
    name: str,
    names: tuple[str, ...],
    keep: Callable[[tables.Columns], NDArray[np.bool_]],
) -> tables.Columns | None:
    """The rows to keep of the first engine that has enough of them."""
    for columns in tables.rows(operators.gpu.name, family, name, operators.engine, *names):
        kept = keep(columns)
        if kept.sum() >= FEWEST:
            return {one: columns[one][kept] for one in names}
    return None


def _best(sizes: Array, milliseconds: Array, *, total: bool = False) -> tuple[Array, Array]:
    """Of several kernels for one shape the fastest, or their sum. Shapes (n, d), seconds (n,)."""
    shapes, which = np.unique(sizes, axis=0, return_inverse=True)
    which = which.reshape(-1)
    if total:
        return shapes, np.bincount(which, weights=milliseconds) / 1e3
    best = np.full(len(shapes), np.inf)
    np.minimum.at(best, which, milliseconds)
    return shapes, best / 1e3


def _sizes(columns: tables.Columns, *names: str) -> Array:
    return np.stack([columns[name].astype(np.float64) for name in names], axis=-1)


def _gemm(operators: "Operators", dtype: str) -> Surface | None:
    names = ("gemm_dtype", "m", "n", "k", "latency")
    for wanted in INSTEAD_OF_GEMM.get(dtype, (dtype,)):
        columns = _rows(operators, "gemm", "gemm", names, lambda one, name=wanted: one["gemm_dtype"] == name)
        if columns is None:
            continue
        shapes, seconds = _best(_sizes(columns, "m", "n", "k"), columns["latency"])
        m, n, k = shapes.T
        return Surface.of(shapes, seconds, operators.gemm_roofline(OURS.get(wanted, wanted), m, n, k), (2.0, 1.0, 1.0))
    return None


def _attention(operators: "Operators", name: str, dim: int, kv: str, window: int) -> tuple[Array, Array] | None:
    names = (
        "batch_size",
        "isl",
        "step",
        "num_heads",
        "num_key_value_heads",
        "head_dim",
        "kv_cache_dtype",
        "window_size",
    )

    def near(columns: tables.Columns) -> NDArray[np.bool_]:
        windows = np.unique(columns["window_size"])
        nearest = min(windows, key=lambda one: abs(int(one) - window)) if window else 0
        return (columns["head_dim"] == dim) & (columns["window_size"] == nearest)

    columns = _rows(
        operators, "attention", name, (*names, "latency"), lambda one: near(one) & (one["kv_cache_dtype"] == kv)
    ) or _rows(operators, "attention", name, (*names, "latency"), near)
    if columns is None:
        return None
    heads, shared = columns["num_heads"], columns["num_key_value_heads"]
    length = columns["isl"] + columns["step"] if name.startswith("generation") else columns["isl"]
    sizes = np.stack([columns["batch_size"], length, heads, np.where(shared == 0, heads, shared)], axis=-1)
    return _best(sizes.astype(np.float64), columns["latency"])


def _decode(operators: "Operators", dim: int, kv: str, window: int) -> Surface | None:
    found = _attention(operators, "generation_attention", dim, kv, window)
    if found is None:
        return None
    batch, context, heads, shared = found[0].T
    ours = OURS.get(kv, kv)
    roofline = operators.decode_roofline(batch, context, heads, shared, dim, ours, window)
    return Surface.of(found[0], found[1], roofline, (1.0, 1.0, 2.0, 4.0))


def _prefill(operators: "Operators", dim: int, kv: str, window: int) -> Surface | None:
    found = _attention(operators, "context_attention", dim, kv, window)
    if found is None:
        return None
    batch, length, heads, shared = found[0].T
    roofline = operators.prefill_roofline(batch, length, heads, shared, dim, window)
    return Surface.of(found[0], found[1], roofline, (1.0, 1.0, 2.0, 4.0))


def _latent(operators: "Operators", name: str, kv: str) -> tuple[Array, Array] | None:
    names = ("batch_size", "isl", "step", "num_heads", "kv_cache_dtype", "latency")
    columns = _rows(operators, "mla", name, names, lambda one: one["kv_cache_dtype"] == kv)
    if columns is None:
        return None
    length = columns["isl"] + columns["step"] if name.startswith("generation") else columns["isl"]
    sizes = np.stack([columns["batch_size"], length, columns["num_heads"]], axis=-1)
    return _best(sizes.astype(np.float64), columns["latency"])


def _latent_decode(operators: "Operators", kv: str) -> Surface | None:
    found = _latent(operators, "generation_mla", kv)
    if found is None:
        return None
    batch, context, heads = found[0].T
    roofline = operators.latent_decode_roofline(batch, context, heads, OURS.get(kv, kv))
    return Surface.of(found[0], found[1], roofline, (1.0, 1.0, 2.0))


def _latent_prefill(operators: "Operators", kv: str) -> Surface | None:
    found = _latent(operators, "context_mla", kv)
    if found is None:
        return None
    batch, length, heads = found[0].T
    return Surface.of(found[0], found[1], operators.latent_prefill_roofline(batch, length, heads), (1.0, 1.0, 2.0))


def _delta(operators: "Operators", phase: str) -> Surface | None:
    names = ("phase", "batch_size", "num_tokens", "num_k_heads", "num_v_heads", "head_k_dim", "latency")
    columns = _rows(
        operators, "linear_attention", "gdn", names, lambda one: (one["phase"] == phase) & (one["head_k_dim"] == 128)
    )
    if columns is None:
        return None
    sizes = _sizes(columns, "num_tokens", "batch_size", "num_k_heads", "num_v_heads")
    shapes, seconds = _best(sizes, columns["latency"], total=True)
    tokens, batch, key_heads, heads = shapes.T
    roofline = operators.delta_roofline(tokens, batch, key_heads, heads, 128, 4)
    return Surface.of(shapes, seconds, roofline, (1.0, 1.0, 2.0, 2.0))


def _moe(operators: "Operators", distribution: str, dtype: str) -> Surface | None:
    names = ("num_tokens", "hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size", "moe_ep_size")
    order = INSTEAD_OF_EXPERTS.get(dtype, (dtype,))
    if dtype == "w4a16_mxfp4" and "fp4" in operators.gpu.flops:
        order = (order[1], order[0], *order[2:])
    for wanted in order:
        columns = _rows(
            operators,
            "moe",
            "moe",
            ("moe_dtype", "distribution", *names, "latency"),
            lambda one, name=wanted: (one["moe_dtype"] == name) & (one["distribution"] == distribution),
        )
        if columns is None:
            continue
        shapes, seconds = _best(_sizes(columns, *names), columns["latency"])
        roofline = _experts_rooflines(operators, OURS.get(wanted, wanted), shapes, distribution)
        return Surface.of(shapes, seconds, roofline, (1.0, 3.0, 3.0, 3.0, 3.0, 2.0, 2.0))
    return None


def _experts_rooflines(operators: "Operators", dtype: str, shapes: Array, distribution: str) -> Array:
    """The roofline of every row; rows that share experts and top-k share the routing."""
    skew = next(one for one, name in SKEWS.items() if name == distribution)
    roofline = np.empty(len(shapes))
    fixed, which = np.unique(shapes[:, [3, 4, 6]], axis=0, return_inverse=True)
    for row, (count, top_k, ep) in enumerate(fixed):
        mine = which.reshape(-1) == row
        tokens, hidden, width, _, _, tp, _ = shapes[mine].T
        routing = Routing.zipf(int(count), skew)
        roofline[mine] = operators.experts_roofline(dtype, tokens, hidden, width, routing, int(top_k), tp, int(ep))
    return roofline


def _all_reduce(operators: "Operators") -> Surface | None:
    names = ("num_gpus", "message_size", "latency")
    columns = _rows(operators, "comm", "custom_allreduce", names, lambda one: one["latency"] > 0)
    if columns is None:
        return None
    shapes, seconds = _best(_sizes(columns, "message_size", "num_gpus"), columns["latency"])
    return Surface.of(shapes, seconds, operators.all_reduce_roofline(shapes[:, 1], shapes[:, 0]), (1.0, 3.0))


MAKERS: dict[str, Callable[..., Surface | None]] = {
    "gemm": _gemm,
    "decode": _decode,
    "prefill": _prefill,
    "latent decode": _latent_decode,
    "latent prefill": _latent_prefill,
    "delta": _delta,
    "moe": _moe,
    "all reduce": _all_reduce,
}
