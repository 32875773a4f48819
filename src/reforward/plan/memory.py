"""What one GPU must hold, and so how much cache is left: the first thing that makes a plan impossible."""

from dataclasses import dataclass

from reforward.plan.dtypes import nbytes
from reforward.plan.engine import Engine, Limits
from reforward.plan.gpu import Gpu
from reforward.plan.layout import Layout
from reforward.plan.model import Model

GIB = 1 << 30
CONTEXT = 0.45 * GIB
"""Driver context, kernels and library workspaces of one process."""
GRAPHS = 0.35 * GIB
"""Captured decode graphs of one rank, at 256 sequences; in proportion to the root of their number."""
COMMUNICATION = 0.38 * GIB
"""Buffers of the collectives of one group of ranks (hardware files of aiconfigurator-core 0.12.0: 342 to 392 MiB)."""
SAMPLER_COPIES = 4.0
"""Copies of the fp32 logits that sampling holds at once: logits, sorted values, probabilities, indices."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on the fullest rank, by term; what is left for the cache, and what that holds."""

    total: float
    """What the driver gives."""
    reserved: float
    """What the engine may not use (1 - memory_utilization)."""
    weights: float
    activation: float
    graphs: float
    communication: float
    context: float
    staging: float
    """Caches in flight between prefill and decode instances."""
    kv_bytes_per_token: float
    state_bytes_per_sequence: float
    block_size: int
    max_num_seqs: int
    max_model_len: int

    @property
    def kv_budget(self) -> float:
        """Bytes left for caches and recurrent states; negative if the weights alone do not fit."""
        held = self.weights + self.activation + self.graphs + self.communication + self.context + self.staging
        return self.total - self.reserved - held

    @property
    def kv_blocks(self) -> int:
        """Blocks of the cache, after the states of all sequences that may run at once."""
        left = self.kv_budget - self.state_bytes_per_sequence * self.max_num_seqs
        return max(int(left // max(self.kv_bytes_per_token * self.block_size, 1.0)), 0)

    @property
    def kv_tokens(self) -> int:
        """Tokens that the cache holds."""
        return self.kv_blocks * self.block_size

    def sequences(self, context: float) -> int:
        """Sequences of this length that fit at once."""
        each = self.kv_bytes_per_token * context + self.state_bytes_per_sequence
        return max(int(self.kv_budget // max(each, 1.0)), 0)

    def fits(self, context: float) -> bool:
        """Whether one sequence of this length fits."""
        return self.sequences(context) >= 1

    def binding(self, context: float) -> str:
        """The term that is largest where nothing fits, else the kind of cache that limits the batch."""
        terms = {
            name: float(getattr(self, name))
            for name in ("weights", "activation", "graphs", "communication", "context", "staging", "reserved")
        }
        if not self.fits(context):
            return max(terms, key=lambda name: terms[name])
        return "state" if self.state_bytes_per_sequence > self.kv_bytes_per_token * context else "kv cache"

    def headroom(self, context: float, sequences: int) -> float:
        """Share of the cache that these sequences leave free; negative if they do not fit."""
        each = self.kv_bytes_per_token * context + self.state_bytes_per_sequence
        return 1.0 - sequences * each / self.kv_budget if self.kv_budget > 0 else -1.0


def fits(model: Model, gpu: Gpu, layout: Layout, engine: Engine, limits: Limits) -> Memory:
    """The memory of the fullest rank of this layout."""
    length = limits.max_model_len or model.max_length
    kv = model.kv_bytes_per_token(layout.tp) / layout.pp
    state = model.state_bytes_per_sequence(layout.tp) / layout.pp
    groups = (layout.tp > 1) + (layout.ranks > 1 and layout.dp * layout.moe_ep > 1) + (layout.pp > 1)
    return Memory(
        total=gpu.memory,
        reserved=gpu.memory * (1 - limits.memory_utilization),
        weights=weights_per_rank(model, layout),
        activation=activation_peak(model, layout, limits),
        graphs=GRAPHS * (min(limits.max_num_seqs, 512) / 256) ** 0.5 if engine.name != "trtllm" else GRAPHS,
        communication=COMMUNICATION * groups,
        context=CONTEXT,
        staging=limits.staging_seqs * (kv * length + state),
        kv_bytes_per_token=kv,
        state_bytes_per_sequence=state,
        block_size=limits.block_size,
        max_num_seqs=limits.max_num_seqs,
        max_model_len=length,
    )


def weights_per_rank(model: Model, layout: Layout) -> float:
    """Bytes of weights on the fullest rank. Latent compressions, routers and norms are held by every rank."""
    kinds = model.dtypes
    total = 0.0
    for one in model.attention:
        whole = one.weights(model.hidden)
        shared = _replicated(model, one.q_rank, one.kv_rank + one.rope_dim if one.kind == "mla" else 0, one.index_dim)
        total += one.layers * (shared + (whole - shared) / layout.tp) * nbytes(kinds.attention)
    total += 3 * model.dense_layers * model.hidden * model.dense_width / layout.tp * nbytes(kinds.mlp)
    if model.moe:
        experts = model.moe.experts * model.expert_parameters() / layout.ranks * nbytes(kinds.experts)
        common = 3 * model.hidden * model.moe.shared / layout.tp * nbytes(kinds.shared)
        router = model.hidden * (model.moe.experts + 2 * model.moe.hidden) * 2
        total += model.moe.layers * (experts + common + router)
    ends = model.hidden * model.vocab / layout.tp * (nbytes(kinds.head) + (0 if model.tied else 2))
    return total / layout.pp + ends


def _replicated(model: Model, *widths: int) -> int:
    """Parameters of projections from the model's width that every rank holds whole."""
    return model.hidden * sum(widths)


def activation_peak(model: Model, layout: Layout, limits: Limits) -> float:
    """Bytes of the largest profile step: residuals and one layer's widest intermediates, or the sampler's logits."""
    tokens = limits.max_num_batched_tokens
    heads = max(one.heads * (2 * one.qk_dim + one.v_dim) for one in model.attention) / layout.tp
    widest = max(3 * model.dense_width / layout.tp, heads)
    if model.moe:
        routed = model.moe.top_k * (3 * model.moe.width / layout.moe_tp + (model.moe.hidden or model.hidden))
        widest = max(widest, routed / layout.moe_ep * layout.dp + 3 * model.moe.shared / layout.tp)
    forward = 2.0 * tokens * (3 * model.hidden * model.streams + widest)
    logits = 4.0 * limits.max_num_seqs * model.vocab * SAMPLER_COPIES
    return max(forward, logits)
