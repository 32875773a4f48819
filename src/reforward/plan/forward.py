"""Seconds of one step of a whole model: its operators, layer by layer, on the ranks of a layout."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reforward.plan.layout import Layout
from reforward.plan.model import Attention, Model
from reforward.plan.operators import Operators
from reforward.plan.routing import Routing

Array = NDArray[np.float64]
USUAL_SKEW = 1.0
"""Zipf exponent of the routing where no traffic is known."""
SMALL_KERNELS = 6
"""Norms, rotary, cache writes, activations, residuals: launches per layer that no table has."""
TOUCHES = 14
"""Elements of the model's width that those read and write per token and layer."""
SAMPLING_TOUCHES = 6
"""Passes over a row of fp32 logits."""


@dataclass(frozen=True, kw_only=True)
class Forward:
    """One attention replica of a model on its ranks. Arguments are arrays of one shape; results have it too."""

    model: Model
    layout: Layout
    operators: Operators
    routing: Routing | None = None
    """Measured spread over experts; None: `USUAL_SKEW`."""

    def tokenwise(self, tokens: Array, rows: Array) -> dict[str, Array]:
        """Terms that depend on how many tokens a step has, and for how many of them logits are wanted."""
        terms = {
            "projections": self._projections(tokens),
            "mlp": self._mlp(tokens),
            "experts": self._experts(tokens),
            "all-to-all": self._exchange(tokens),
            "all-reduce": self._all_reduce(tokens),
            "small kernels": self._small(tokens),
            "head": self._head(rows),
        }
        return {name: seconds for name, seconds in terms.items() if seconds.any()}

    def decode_attention(self, batch: Array, context: Array) -> Array:
        """All layers' attention of one token per sequence."""
        return self._sum(batch, [one.layers * self._decode(one, batch, context) for one in self.model.attention])

    def prefill_attention(self, tokens: Array, context: Array) -> Array:
        """All layers' attention of prompts, `context` tokens before each token on average."""
        length = 2 * np.asarray(context, dtype=np.float64) + 1
        batch = np.maximum(tokens / length, 1e-9)
        share = np.minimum(batch, 1.0)
        whole = np.maximum(batch, 1.0)
        kinds = [one.layers * self._prefill(one, whole, length) * share for one in self.model.attention]
        return self._sum(tokens, kinds)

    @staticmethod
    def _sum(like: Array, parts: list[Array]) -> Array:
        return np.sum(np.stack(parts), axis=0) if parts else np.zeros_like(like)

    def _decode(self, one: Attention, batch: Array, context: Array) -> Array:
        ops, kv, tp = self.operators, self.model.dtypes.kv, self.layout.tp
        heads = max(one.heads // tp, 1)
        if one.kind == "linear":
            keys = max(one.linear_heads // tp, 1)
            return ops.delta("generation", batch, batch, keys, heads, one.v_dim, one.state_bytes)
        seen = np.asarray(one.seen_by(context))
        index = self._index(one, batch, context, heads=True)
        if one.kind == "gqa":
            window = one.window if not one.topk else 0
            shared = max(one.kv_heads // tp, 1)
            where = np.minimum(context, one.topk) if one.topk else context
            return index + ops.attention_decode(batch, where, heads, shared, one.qk_dim, kv, window)
        return index + ops.latent_decode(batch, seen, heads, kv)

    def _prefill(self, one: Attention, batch: Array, length: Array) -> Array:
        ops, kv, tp = self.operators, self.model.dtypes.kv, self.layout.tp
        heads = max(one.heads // tp, 1)
        if one.kind == "linear":
            keys = max(one.linear_heads // tp, 1)
            return ops.delta("context", batch * length, batch, keys, heads, one.v_dim, one.state_bytes)
        index = self._index(one, batch * length, length / 2, heads=True)
        seen = np.asarray(one.seen_by(length / 2))
        share = np.minimum(seen / np.maximum(length / 2, 1e-9), 1.0) if one.topk or one.compress > 1 else 1.0
        if one.kind == "gqa":
            window = one.window if not one.topk else 0
            shared = max(one.kv_heads // tp, 1)
            return index + share * ops.attention_prefill(batch, length, heads, shared, one.qk_dim, kv, window)
        return index + share * ops.latent_prefill(batch, length, heads, kv)

    def _index(self, one: Attention, tokens: Array, context: Array, *, heads: bool) -> Array:
        """The indexer of sparse attention: every rank scores all blocks for all of its heads."""
        if not one.index_heads:
            return np.zeros(np.broadcast_shapes(np.shape(tokens), np.shape(context)))
        scored = context / (one.index_block * one.compress)
        flops = 2 * tokens * scored * one.index_heads * one.index_dim
        return self.operators.scored(flops, tokens * scored * one.index_dim)

    def _projections(self, tokens: Array) -> Array:
        gemm, dtype, hidden, tp = self.operators.gemm, self.model.dtypes.attention, self.model.hidden, self.layout.tp
        total = np.zeros_like(tokens)
        for one in self.model.attention:
            seconds = np.zeros_like(tokens)
            for n, k in one.matrices(hidden, tp):
                seconds = seconds + gemm(dtype, tokens, n, k)
            total = total + one.layers * seconds
        return total

    def _pair(self, dtype: str, tokens: Array, width: float) -> Array:
        """A gated MLP of this width on one rank."""
        gemm, hidden = self.operators.gemm, self.model.hidden
        return gemm(dtype, tokens, 2 * width, hidden) + gemm(dtype, tokens, hidden, width)

    def _mlp(self, tokens: Array) -> Array:
        model, tp = self.model, self.layout.tp
        total = np.zeros_like(tokens)
        if model.dense_layers:
            total = total + model.dense_layers * self._pair(model.dtypes.mlp, tokens, model.dense_width / tp)
        if model.moe and model.moe.shared:
            total = total + model.moe.layers * self._pair(model.dtypes.shared, tokens, model.moe.shared / tp)
        return total

    def _experts(self, tokens: Array) -> Array:
        moe = self.model.moe
        if moe is None:
            return np.zeros_like(tokens)
        routing = self.routing or Routing.zipf(moe.experts, USUAL_SKEW)
        layout, hidden = self.layout, moe.hidden or self.model.hidden
        everyones = tokens * layout.dp
        grouped = self.operators.experts(
            self.model.dtypes.experts, everyones, hidden, moe.width, routing, moe.top_k, layout.moe_tp, layout.moe_ep
        )
        router = self.operators.gemm("bf16", tokens, moe.experts, self.model.hidden)
        latent = 2 * self.operators.gemm("bf16", tokens, hidden, self.model.hidden) if moe.hidden else 0.0
        return moe.layers * (grouped + router + latent)

    def _all_reduce(self, tokens: Array) -> Array:
        model, layout = self.model, self.layout
        elements = tokens * model.hidden
        attention = self.operators.all_reduce(layout.tp, elements)
        experts = model.moe.layers if model.moe else 0
        after = (model.layers - experts) + (experts if layout.dp == 1 else 0)
        hops = (layout.pp - 1) * self.operators.exchange(2, elements * 2) if layout.pp > 1 else 0.0
        return model.layers * attention + after * self.operators.all_reduce(layout.tp, elements) + hops

    def _exchange(self, tokens: Array) -> Array:
        """With attention replicas, tokens go to their experts and come back."""
        moe, layout = self.model.moe, self.layout
        if moe is None or layout.dp == 1:
            return np.zeros_like(tokens)
        everyones = tokens * layout.dp * (moe.hidden or self.model.hidden)
        return moe.layers * 2 * self.operators.exchange(layout.ranks, everyones)

    def _small(self, tokens: Array) -> Array:
        touched = tokens * self.model.hidden * self.model.streams * TOUCHES * 2 / SMALL_KERNELS
        return self.model.layers * SMALL_KERNELS * self.operators.moved(touched)

    def _head(self, rows: Array) -> Array:
        model, tp = self.model, self.layout.tp
        product = self.operators.gemm(model.dtypes.head, np.maximum(rows, 1.0), model.vocab / tp, model.hidden)
        return (rows > 0) * (product + self.operators.moved(rows * model.vocab * 4 * SAMPLING_TOUCHES))


def total(terms: Mapping[str, Array]) -> Array:
    """The sum of all terms."""
    return np.sum(np.stack(list(terms.values())), axis=0)
