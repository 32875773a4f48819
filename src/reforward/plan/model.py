"""The numbers of an architecture that decide its cost: layers, widths, heads, experts, caches and what is quantised."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import BadInput
from reforward.plan.dtypes import Dtypes, nbytes

Kind = Literal["gqa", "mla", "compressed", "linear"]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One kind of attention and how many layers have it. Counts are of the whole model, before any parallelism."""

    layers: int
    kind: Kind
    heads: int
    kv_heads: int
    """Heads of the cache; 1 for latent attention, whose cache every rank holds whole. Linear: value heads."""
    qk_dim: int
    v_dim: int
    q_rank: int = 0
    """Width of the compressed query; 0: none."""
    kv_rank: int = 0
    rope_dim: int = 0
    window: int = 0
    """Tokens that a query sees at most; 0: all."""
    topk: int = 0
    """Cached tokens that a query picks; 0: all. Sparse."""
    compress: int = 1
    """Tokens that share one entry of the cache."""
    index_heads: int = 0
    """Heads of the indexer that picks; 0: none, or another layer's choice is reused."""
    index_dim: int = 0
    index_block: int = 1
    """Tokens that the indexer scores and picks together."""
    o_groups: int = 0
    o_rank: int = 0
    """Grouped low-rank output projection; 0: plain."""
    gate: int = 0
    """Outputs of an extra output gate, per token."""
    linear_heads: int = 0
    """Linear: key heads, each with `qk_dim`."""
    conv: int = 0
    """Linear: width of the short convolution."""
    state_bytes: int = 2
    """Linear: bytes per element of the recurrent state."""

    def seen_by(self, context: NDArray[np.float64]) -> NDArray[np.float64]:
        """Cache entries that one query at each of these positions reads."""
        entries = context / self.compress
        if self.topk:
            entries = np.minimum(entries, self.topk)
        if self.compress > 1:
            return entries + np.minimum(context, self.window)
        return np.minimum(entries, self.window) if self.window else entries

    def matrices(self, hidden: int, tp: int) -> list[tuple[float, float]]:
        """(outputs, inputs) of the projections of one layer on one of `tp` ranks."""
        heads = self.heads / tp
        if self.kind == "linear":
            keys, values = self.linear_heads * self.qk_dim / tp, self.kv_heads * self.v_dim / tp
            return [(2 * keys + 2 * values + self.gate / tp, hidden), (hidden, values)]
        shared = max(self.kv_heads / tp, 1) * (self.qk_dim + self.v_dim)
        if self.kind == "gqa":
            found: list[tuple[float, float]] = [
                (heads * self.qk_dim + shared + (self.gate / tp), hidden),
                (hidden, heads * self.v_dim),
            ]
        else:
            kept = self.kv_rank + self.rope_dim if self.kind == "mla" else self.qk_dim
            down = self.q_rank + kept if self.q_rank else heads * self.qk_dim + kept
            found = [(down, hidden), (self.o_rank or hidden, heads * self.v_dim)]
            if self.q_rank:
                found.append((heads * self.qk_dim, self.q_rank))
            if self.kind == "mla":
                found += [(heads * (self.qk_dim - self.rope_dim), self.kv_rank), (heads * self.v_dim, self.kv_rank)]
            if self.o_rank:
                found.append((hidden, self.o_groups * self.o_rank / tp))
        return found + ([(self.index_heads * self.index_dim, self.q_rank or hidden)] if self.index_heads else [])

    def weights(self, hidden: int) -> int:
        """Parameters of one layer."""
        if self.kind == "linear":
            keys, values = self.linear_heads * self.qk_dim, self.kv_heads * self.v_dim
            return hidden * (2 * keys + 2 * values + self.gate) + values * hidden + self.conv * (2 * keys + values)
        index = self.index_heads * self.index_dim * (self.q_rank or hidden) + hidden * self.index_dim * bool(
            self.index_dim
        )
        queries = self.heads * self.qk_dim
        query = hidden * self.q_rank + self.q_rank * queries if self.q_rank else hidden * queries
        out = self.heads * self.v_dim * (self.o_rank or hidden) + self.o_groups * self.o_rank * hidden
        return query + self._cache_weights(hidden) + out + index + hidden * self.gate

    def _cache_weights(self, hidden: int) -> int:
        if self.kind == "mla":
            expand = self.heads * (self.qk_dim - self.rope_dim + self.v_dim)
            return hidden * (self.kv_rank + self.rope_dim) + self.kv_rank * expand
        if self.kind == "compressed":
            return hidden * self.qk_dim * (1 + (2 if self.compress > 1 else 0))
        return hidden * self.kv_heads * (self.qk_dim + self.v_dim)

    def cache_elements(self, tp: int = 1) -> float:
        """Elements per token and layer that one rank holds; a head that several ranks need is held by each."""
        if self.kind == "linear":
            return 0.0
        index = self.index_dim / self.compress
        if self.kind == "mla":
            return self.kv_rank + self.rope_dim + index
        if self.kind == "compressed":
            return (self.qk_dim / self.compress if self.compress > 1 else 0.0) + (index if self.topk else 0.0)
        return max(self.kv_heads / tp, 1) * (self.qk_dim + self.v_dim) + index

    def state(self, tp: int = 1) -> float:
        """Bytes per sequence and layer on one rank that do not grow with the context: recurrent state, window caches."""
        if self.kind == "linear":
            keys, values = self.linear_heads * self.qk_dim, self.kv_heads * self.v_dim
            recurrent = self.kv_heads * self.qk_dim * self.v_dim * self.state_bytes
            return (recurrent + (self.conv - 1) * (2 * keys + values) * 2) / tp
        return self.window * self.qk_dim * 2.0 if self.kind == "compressed" else 0.0


@dataclass(frozen=True, kw_only=True)
class Moe:
    """Layers of routed experts."""

    layers: int
    experts: int
    top_k: int
    width: int
    """Of one expert."""
    shared: int = 0
    """Width of what every token passes; 0: nothing shared."""
    hidden: int = 0
    """Width that experts read and write if it is not the model's; 0: the model's."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """One architecture. Widths in elements, sizes of the whole model before any parallelism."""

    name: str
    type: str
    hidden: int
    vocab: int
    attention: tuple[Attention, ...]
    dense_layers: int
    dense_width: int
    moe: Moe | None
    dtypes: Dtypes
    max_length: int
    tied: bool = False
    mtp_layers: int = 0
    streams: int = 1
    """Residual streams (hyper-connections): each token's state is this many times `hidden`."""

    @classmethod
    def read(cls, source: str | Path) -> "Model":
        """A directory, a config.json, or a packaged name. Raises `BadInput` that names what is missing."""
        from reforward.plan.configs import read_model

        return read_model(source)

    @property
    def layers(self) -> int:
        """Transformer layers, drafting layers left out."""
        return sum(one.layers for one in self.attention)

    @property
    def heads(self) -> int:
        """The fewest heads of a layer that has a softmax: what tensor parallelism must divide."""
        return min((one.heads for one in self.attention if one.kind != "linear"), default=self.attention[0].heads)

    def quantised(self, dtypes: Dtypes) -> "Model":
        """The same architecture in other number formats."""
        return replace(self, dtypes=dtypes)

    def in_precision(self, dense: str, experts: str | None = None, *, kv: str | None = None) -> "Model":
        """All matrices in `dense`, routed experts in `experts`; the head stays bf16."""
        same = replace(self.dtypes, attention=dense, mlp=dense, shared=dense, experts=experts or dense)
        return self.quantised(replace(same, kv=kv) if kv else same)

    def parameters(self, *, active: bool = False) -> float:
        """All parameters, or those that one token passes."""
        return sum(count for _, count in self._counts(active=active))

    def weight_bytes(self) -> float:
        """Bytes of all weights at their own formats."""
        return sum(count * nbytes(dtype) for dtype, count in self._counts(active=False))

    def expert_parameters(self) -> int:
        """Of one routed expert."""
        return 3 * (self.moe.hidden or self.hidden) * self.moe.width if self.moe else 0

    def _counts(self, *, active: bool) -> list[tuple[str, float]]:
        kinds = [(self.dtypes.attention, float(one.layers * one.weights(self.hidden))) for one in self.attention]
        kinds.append((self.dtypes.mlp, 3.0 * self.dense_layers * self.hidden * self.dense_width))
        if self.moe:
            routed = (self.moe.top_k if active else self.moe.experts) * self.expert_parameters()
            latent = 2 * self.hidden * self.moe.hidden
            kinds.append((self.dtypes.experts, float(self.moe.layers * routed)))
            kinds.append((self.dtypes.shared, 3.0 * self.moe.layers * self.hidden * self.moe.shared))
            kinds.append(("bf16", float(self.moe.layers * (self.hidden * self.moe.experts + latent))))
        kinds.append((self.dtypes.head, float(self.hidden * self.vocab)))
        if not self.tied and not active:
            kinds.append(("bf16", float(self.hidden * self.vocab)))
        return kinds

    def kv_bytes_per_token(self, tp: int = 1) -> float:
        """Bytes of cache that one rank holds for one more token, all layers; windows do not grow and are left out."""
        elements = sum(one.layers * one.cache_elements(tp) for one in self.attention if not self._bounded(one))
        return elements * nbytes(self.dtypes.kv)

    def state_bytes_per_sequence(self, tp: int = 1) -> float:
        """Bytes that one rank holds per sequence whatever its length: recurrent states and full windows."""
        fixed = sum(one.layers * one.state(tp) for one in self.attention)
        kept = (one.layers * one.cache_elements(tp) * one.window for one in self.attention if self._bounded(one))
        return fixed + sum(kept) * nbytes(self.dtypes.kv)

    @staticmethod
    def _bounded(one: Attention) -> bool:
        return one.window > 0 and one.kind in ("gqa", "mla")

    def check(self) -> "Model":
        """Itself, if its numbers do not contradict one another."""
        for name in ("hidden", "vocab", "max_length"):
            if getattr(self, name) < 1:
                raise BadInput(f"{self.name}: {name} must be positive, got {getattr(self, name)}; mend the config.json")
        for one in self.attention:
            if one.kind == "gqa" and one.heads % one.kv_heads:
                raise BadInput(
                    f"{self.name}: {one.heads} heads cannot share {one.kv_heads} key heads; mend the config.json"
                )
        if self.moe and not 0 < self.moe.top_k <= self.moe.experts:
            raise BadInput(
                f"{self.name}: {self.moe.top_k} of {self.moe.experts} experts per token; mend the config.json"
            )
        mlps = self.dense_layers + (self.moe.layers if self.moe else 0)
        if mlps != self.layers:
            raise BadInput(f"{self.name}: {self.layers} attention layers but {mlps} MLP layers; mend the config.json")
        return self
