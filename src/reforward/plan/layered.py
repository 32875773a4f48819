"""Step times of a whole model from its operators: `Forward` as `StepTimes`, with what the host adds to a step."""

from dataclasses import dataclass

import numpy as np

from reforward.plan.forward import Forward
from reforward.plan.steps import Array, ByTerms, Number

HOST, SEQUENCE = 1.5e-3, 3e-5
"""Seconds that scheduling, sampling and input preparation add to a step, and to it for each sequence."""


@dataclass(frozen=True, kw_only=True)
class Layered(ByTerms):
    """Implements `StepTimes`; nothing in it is fitted to served requests."""

    forward: Forward

    def terms(
        self, prefill_tokens: Number, prefill_context: Number, batch: Number, context: Number
    ) -> dict[str, Array]:
        """Those of the model's operators, attention of what decodes and of prompts, and the host."""
        sizes = [np.asarray(one, dtype=np.float64) for one in (prefill_tokens, prefill_context, batch, context)]
        tokens, before, decoding, held = (np.array(one) for one in np.broadcast_arrays(*sizes))
        rows = decoding + (tokens > 0)
        found = dict(self.forward.tokenwise(tokens + decoding, rows))
        decode = self.forward.decode_attention(np.maximum(decoding, 1.0), np.maximum(held, 1.0))
        prefill = self.forward.prefill_attention(np.maximum(tokens, 1.0), np.maximum(before, 0.0))
        found["decode attention"] = (decoding > 0) * decode
        found["prefill attention"] = (tokens > 0) * prefill
        found["host"] = (rows > 0) * HOST + SEQUENCE * decoding
        return found
