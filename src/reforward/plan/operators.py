"""Seconds of one operator of one rank: the roofline, times what was measured of such shapes on this GPU under this engine."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reforward.plan import tables
from reforward.plan.dtypes import nbytes
from reforward.plan.fitted import SKEWS, make
from reforward.plan.gpu import Gpu
from reforward.plan.routing import Routing
from reforward.plan.surface import Surface

Array = NDArray[np.float64]
LAUNCH = 3e-6
"""Seconds that the smallest kernel takes inside a captured graph."""
COMPUTE, MEMORY = 0.65, 0.8
"""Shares of the peaks that large kernels reach where nothing is measured: medians over the tables of seven GPUs."""
HOP = 8e-6
"""Seconds of the smallest collective."""
TABLE_DTYPE = {
    "bf16": "bfloat16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "int8": "fp8",
    "nvfp4": "nvfp4",
    "mxfp4": "w4a16_mxfp4",
    "int4": "int4_wo",
    "fp32": "bfloat16",
}


@dataclass(frozen=True)
class Operators:
    """The operators of one GPU under one engine. Sizes are those of one rank; arrays of sizes give arrays of seconds."""

    gpu: Gpu
    engine: str
    measured: bool = True
    """Look at the tables; False: the roofline alone."""
    _surfaces: dict[tuple[object, ...], Surface | None] = field(
        default_factory=dict[tuple[object, ...], Surface | None], repr=False
    )

    @cached_property
    def known(self) -> bool:
        """Whether there are tables for this GPU here."""
        return self.measured and tables.measured(self.gpu.name)

    def _roofline(self, flops: Array, moved: Array, dtype: str) -> Array:
        compute = flops / (self.gpu.flops_of(dtype) * COMPUTE)
        return np.maximum(compute, moved / (self.gpu.bandwidth * MEMORY)) + LAUNCH

    def gemm(self, dtype: str, m: Array, n: float, k: float) -> Array:
        """(m, k) x (k, n), weights of `dtype`. Never slower than in 16 bits: tables where quantising activations takes
        longer than that were measured launch by launch, which a captured graph does not pay for."""
        m = np.asarray(m, dtype=np.float64)
        roofline = self.gemm_roofline(dtype, m, n, k)
        sizes = np.stack(np.broadcast_arrays(m, float(n), float(k)), axis=-1).reshape(-1, 3)
        found = [(one, self._surface("gemm", TABLE_DTYPE[one])) for one in {dtype, "bf16"} if self.known]
        times = [
            surface.seconds(sizes, self.gemm_roofline(one, sizes[:, 0], n, k)).reshape(roofline.shape)
            for one, surface in found
            if surface is not None
        ]
        return np.min(times, axis=0) if times else roofline

    def gemm_roofline(self, dtype: str, m: Array, n: float | Array, k: float | Array) -> Array:
        return self._roofline(2 * m * n * k, n * k * nbytes(dtype) + m * (n + k) * 2, dtype)

    def moved(self, nbytes_moved: Array) -> Array:
        """Norms, activations, copies: so many bytes read and written by one kernel."""
        return np.asarray(nbytes_moved) / (self.gpu.bandwidth * MEMORY) + LAUNCH

    def scored(self, flops: Array, nbytes_moved: Array) -> Array:
        """An indexer's scores in 8 bits and its choice."""
        return self._roofline(np.asarray(flops), np.asarray(nbytes_moved), "fp8") + LAUNCH

    def attention_decode(
        self, batch: Array, context: Array, heads: int, kv_heads: int, dim: int, kv: str, window: int
    ) -> Array:
        """One query for each of `batch` sequences against its cache of `context` tokens."""
        batch, context = np.broadcast_arrays(np.asarray(batch, float), np.asarray(context, float))
        roofline = self.decode_roofline(batch, context, heads, kv_heads, dim, kv, window)
        surface = self._surface("decode", _near_dim(dim), _kv(kv), window) if self.known else None
        if surface is None:
            return roofline
        sizes = np.stack(np.broadcast_arrays(batch, context, float(heads), float(kv_heads)), axis=-1)
        return surface.seconds(sizes.reshape(-1, 4), roofline.reshape(-1)).reshape(roofline.shape)

    def decode_roofline(
        self, batch: Array, context: Array, heads: Array | int, kv_heads: Array | int, dim: int, kv: str, window: int
    ) -> Array:
        seen = np.minimum(context, window) if window else context
        flops = 4 * batch * seen * heads * dim
        return self._roofline(flops, 2 * batch * seen * kv_heads * dim * nbytes(kv), "bf16")

    def attention_prefill(
        self, batch: Array, length: Array, heads: int, kv_heads: int, dim: int, kv: str, window: int
    ) -> Array:
        """Causal attention of `batch` whole prompts of `length` tokens."""
        batch, length = np.broadcast_arrays(np.asarray(batch, float), np.asarray(length, float))
        roofline = self.prefill_roofline(batch, length, heads, kv_heads, dim, window)
        surface = self._surface("prefill", _near_dim(dim), _kv(kv), window) if self.known else None
        if surface is None:
            return roofline
        sizes = np.stack(np.broadcast_arrays(batch, length, float(heads), float(kv_heads)), axis=-1)
        return surface.seconds(sizes.reshape(-1, 4), roofline.reshape(-1)).reshape(roofline.shape)

    def prefill_roofline(
        self, batch: Array, length: Array, heads: Array | int, kv_heads: Array | int, dim: int, window: int
    ) -> Array:
        seen = np.minimum(length / 2, window) if window else length / 2
        flops = 4 * batch * length * seen * heads * dim
        return self._roofline(flops, 2 * batch * length * (heads + kv_heads) * dim * 2, "bf16")

    def latent_decode(self, batch: Array, context: Array, heads: int, kv: str) -> Array:
        """Latent attention (512 + 64) of one query per sequence, weights absorbed."""
        batch, context = np.broadcast_arrays(np.asarray(batch, float), np.asarray(context, float))
        roofline = self.latent_decode_roofline(batch, context, heads, kv)
        surface = self._surface("latent decode", _kv(kv)) if self.known else None
        if surface is None:
            return roofline
        sizes = np.stack(np.broadcast_arrays(batch, context, float(heads)), axis=-1)
        return surface.seconds(sizes.reshape(-1, 3), roofline.reshape(-1)).reshape(roofline.shape)

    def latent_decode_roofline(self, batch: Array, context: Array, heads: Array | int, kv: str) -> Array:
        flops = 2 * batch * context * heads * (576 + 512)
        return self._roofline(flops, batch * context * 576 * nbytes(kv), "bf16")

    def latent_prefill(self, batch: Array, length: Array, heads: int, kv: str) -> Array:
        """Latent attention of whole prompts, expanded to heads of 192 and 128."""
        batch, length = np.broadcast_arrays(np.asarray(batch, float), np.asarray(length, float))
        roofline = self.latent_prefill_roofline(batch, length, heads)
        surface = self._surface("latent prefill", _kv(kv)) if self.known else None
        if surface is None:
            return roofline
        sizes = np.stack(np.broadcast_arrays(batch, length, float(heads)), axis=-1)
        return surface.seconds(sizes.reshape(-1, 3), roofline.reshape(-1)).reshape(roofline.shape)

    def latent_prefill_roofline(self, batch: Array, length: Array, heads: Array | int) -> Array:
        flops = batch * length * length * heads * (192 + 128)
        return self._roofline(flops, batch * length * heads * 512 * 2.0, "bf16")

    def delta(self, phase: str, tokens: Array, batch: Array, key_heads: int, heads: int, dim: int, state: int) -> Array:
        """A linear-attention layer (gated delta rule) without its projections; `phase`: context or generation."""
        tokens, batch = np.broadcast_arrays(np.asarray(tokens, float), np.asarray(batch, float))
        roofline = self.delta_roofline(tokens, batch, key_heads, heads, dim, state)
        surface = self._surface("delta", phase) if self.known else None
        if surface is None:
            return roofline
        sizes = np.stack(np.broadcast_arrays(tokens, batch, float(key_heads), float(heads)), axis=-1)
        return surface.seconds(sizes.reshape(-1, 4), roofline.reshape(-1)).reshape(roofline.shape)

    def delta_roofline(
        self, tokens: Array, batch: Array, key_heads: Array | int, heads: Array | int, dim: int, state: int
    ) -> Array:
        moved = batch * heads * dim * dim * state * 2 + tokens * (2 * key_heads + 2 * heads) * dim * 4
        return self._roofline(8 * tokens * heads * dim * dim, moved, "bf16")

    def experts(
        self, dtype: str, tokens: Array, hidden: int, width: int, routing: Routing, top_k: int, tp: int, ep: int
    ) -> Array:
        """Grouped experts of one rank for `tokens` tokens of the whole group of tp x ep ranks."""
        tokens = np.asarray(tokens, dtype=np.float64)
        count = len(routing.shares)
        skew = routing.skew
        found = [(one, self._surface("moe", name, TABLE_DTYPE[dtype])) for one, name in SKEWS.items() if self.known]
        usable = [(one, surface) for one, surface in found if surface is not None]
        if not usable:
            return self.experts_roofline(dtype, tokens, hidden, width, routing, top_k, tp, ep)
        at = list[Array]()
        for one, surface in usable:
            roofline = self.experts_roofline(dtype, tokens, hidden, width, Routing.zipf(count, one), top_k, tp, ep)
            rest = (float(hidden), float(width), float(count), float(top_k), float(tp), float(ep))
            sizes = np.stack(np.broadcast_arrays(tokens, *rest), axis=-1).reshape(-1, 7)
            at.append(np.log(surface.seconds(sizes, roofline.reshape(-1)).reshape(roofline.shape)))
        places = [one for one, _ in usable]
        return np.exp(_between(skew, places, at))

    def experts_roofline(
        self, dtype: str, tokens: Array, hidden: float, width: float, routing: Routing, top_k: int, tp: float, ep: int
    ) -> Array:
        touched = routing.touched(tokens, top_k) / ep
        each = 3 * hidden * width / tp
        busiest = routing.busiest(ep)
        flops = 2 * tokens * top_k / ep * each * np.minimum(busiest, 1 + tokens / 256)
        return self._roofline(flops, touched * each * nbytes(dtype) + tokens * top_k / ep * hidden * 4, dtype)

    def all_reduce(self, ranks: int, elements: Array) -> Array:
        """Sum of 16-bit elements over ranks, every rank gets all."""
        elements = np.asarray(elements, dtype=np.float64)
        if ranks == 1:
            return np.zeros_like(elements)
        roofline = self.all_reduce_roofline(float(ranks), elements)
        surface = self._surface("all reduce") if self.known else None
        if surface is None:
            return roofline
        sizes = np.stack(np.broadcast_arrays(elements, float(ranks)), axis=-1)
        return surface.seconds(sizes.reshape(-1, 2), roofline.reshape(-1)).reshape(roofline.shape)

    def all_reduce_roofline(self, ranks: float | Array, elements: Array) -> Array:
        return HOP + 2 * elements * 2 * (ranks - 1) / ranks / (self.gpu.link * 0.75)

    def exchange(self, ranks: int, elements: Array) -> Array:
        """All-gather, reduce-scatter or all-to-all of 16-bit elements: each rank takes in (ranks - 1) / ranks of them."""
        elements = np.asarray(elements, dtype=np.float64)
        if ranks == 1:
            return np.zeros_like(elements)
        share = {"mesh": 1.3, "torus": 2.0}.get(self.gpu.topology, 1.0)
        return HOP + share * 2 * elements * (ranks - 1) / ranks / (self.gpu.link * 0.75)

    def _surface(self, kind: str, *key: object) -> Surface | None:
        """The surface of a kind of operator, made at its first use."""
        name = (kind, *key)
        if name not in self._surfaces:
            self._surfaces[name] = make(self, kind, *key)
        return self._surfaces[name]


def _near_dim(dim: int) -> int:
    return min((64, 128, 256), key=lambda one: abs(one - dim))


def _kv(dtype: str) -> str:
    return "fp8" if nbytes(dtype) < 2 else "bfloat16"


def _between(where: float, places: list[float], values: list[Array]) -> Array:
    """Linear in between, constant beyond."""
    if where <= places[0] or len(places) == 1:
        return values[0]
    for left in range(len(places) - 1):
        if where <= places[left + 1]:
            share = (where - places[left]) / (places[left + 1] - places[left])
            return (1 - share) * values[left] + share * values[left + 1]
    return values[-1]
