"""Step times as a sum of eight parts: the simplest clock, and what is fitted where operators were not measured."""

from dataclasses import dataclass

import numpy as np

from reforward.plan.dtypes import nbytes
from reforward.plan.gpu import Gpu
from reforward.plan.layout import Layout
from reforward.plan.model import Model
from reforward.plan.steps import Array, ByTerms, Number

MEMORY, COMPUTE = 0.8, 0.6
"""Shares of the datasheet's peaks that a first guess takes."""
CROWDED = 0.5
HOST, SEQUENCE = 1e-3, 3e-5
"""Seconds of a step, and of each sequence in it, that a first guess takes for scheduling and sampling."""


@dataclass(frozen=True, kw_only=True)
class Affine(ByTerms):
    """Seconds for one of each; implements `StepTimes`."""

    weights: float
    """A step, whatever is in it: what every token needs is read once."""
    experts: float
    """All routed experts of a rank; a step reads those that at least one of its tokens is sent to."""
    chance: float
    """That a token is sent to a given expert."""
    sequence: float
    context: float
    """A token in a cache that a decoding sequence reads."""
    crowded: float
    """The same, more, if the step has prompt tokens too: one kernel for both is the best for neither."""
    mixed: float
    """A step that has prompt tokens."""
    token: float
    """A prompt token."""
    pair: float
    """A prompt token and a token before it."""

    @classmethod
    def guess(cls, model: Model, gpu: Gpu, layout: Layout) -> "Affine":
        """From the datasheet: bytes over bandwidth, operations over peak."""
        read, peak = gpu.bandwidth * MEMORY, gpu.flops_of(model.dtypes.attention) * COMPUTE
        routed = model.moe.layers * model.moe.experts * model.expert_parameters() if model.moe else 0
        expert_bytes = routed * nbytes(model.dtypes.experts)
        dims = sum(one.layers * one.heads * (one.qk_dim + one.v_dim) for one in model.attention)
        context = max(model.kv_bytes_per_token(layout.tp), nbytes(model.dtypes.kv)) / read
        return cls(
            weights=(model.weight_bytes() - expert_bytes) / layout.tp / read + HOST,
            experts=expert_bytes / layout.ranks / read,
            chance=model.moe.top_k / model.moe.experts if model.moe else 0.0,
            sequence=SEQUENCE,
            context=context,
            crowded=CROWDED * context,
            mixed=HOST,
            token=2 * model.parameters(active=True) / layout.tp / peak,
            pair=2 * dims / layout.tp / peak,
        )

    def terms(
        self, prefill_tokens: Number, prefill_context: Number, batch: Number, context: Number
    ) -> dict[str, Array]:
        """The eight parts."""
        tokens: Array = np.asarray(prefill_tokens, dtype=np.float64)
        batch = np.asarray(batch, dtype=np.float64)
        held: Array = batch * np.asarray(context, dtype=np.float64)
        pairs: Array = tokens * (np.asarray(prefill_context, dtype=np.float64) + 1)
        parts = {
            "weights": self.weights * (tokens + batch > 0),
            "experts": self.experts * (1 - (1 - self.chance) ** (tokens + batch)),
            "sequence": self.sequence * batch,
            "context": self.context * held,
            "crowded": self.crowded * held * (tokens > 0),
            "mixed": self.mixed * (tokens > 0),
            "token": self.token * tokens,
            "pair": self.pair * pairs,
        }
        return {name: np.asarray(part, dtype=np.float64) for name, part in parts.items()}
