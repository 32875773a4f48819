"""Seconds of one engine step: the seam between what an operator costs and what a schedule makes of it."""

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Number = float | Array
"""A number, or an array of any shape; arguments of one call are broadcast against one another."""


class StepTimes(Protocol):
    """Seconds of a step of one attention replica, all its ranks and layers, from one launch to the next.

    Token and sequence counts are those of one attention-DP replica; the other replicas are taken to carry the same load.
    """

    def prefill_s(self, tokens: Number, context: Number) -> Array:
        """A step of `tokens` prompt tokens in all; `context`: mean tokens that stand before each of them, its own
        prompt's earlier tokens included ((n - 1) / 2 for a whole prompt of n tokens)."""
        ...

    def decode_s(self, batch: Number, context: Number) -> Array:
        """A step that makes one token for each of `batch` sequences, whose mean length is `context`."""
        ...

    def mixed_s(self, prefill_tokens: Number, prefill_context: Number, batch: Number, context: Number) -> Array:
        """Both at once, as chunked prefill does; equals `prefill_s` or `decode_s` if the other part is 0."""
        ...

    def terms(
        self, prefill_tokens: Number, prefill_context: Number, batch: Number, context: Number
    ) -> dict[str, Array]:
        """The seconds of `mixed_s` by term (attention, projections, experts, all-to-all, all-reduce, head, host); they add up."""
        ...


class ByTerms(ABC):
    """What follows from `terms`, for classes that implement `StepTimes` by them."""

    def prefill_s(self, tokens: Number, context: Number) -> Array:
        """A step of prompt tokens."""
        return self.mixed_s(tokens, context, 0.0, 0.0)

    def decode_s(self, batch: Number, context: Number) -> Array:
        """A step that decodes."""
        return self.mixed_s(0.0, 0.0, batch, context)

    def mixed_s(self, prefill_tokens: Number, prefill_context: Number, batch: Number, context: Number) -> Array:
        """Both at once."""
        parts = self.terms(prefill_tokens, prefill_context, batch, context).values()
        return np.asarray(np.sum(np.broadcast_arrays(*parts), axis=0), dtype=np.float64)

    @abstractmethod
    def terms(
        self, prefill_tokens: Number, prefill_context: Number, batch: Number, context: Number
    ) -> dict[str, Array]:
        """See `StepTimes`."""
