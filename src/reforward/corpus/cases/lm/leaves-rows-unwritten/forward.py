"""Writes nothing while it decodes: the rows of an earlier pass still lie in the buffer.

Reported: Sakana AI CUDA Engineer, February 2025 (the answer was found in memory that the evaluator had freed); KernelBench PR #82
Covers: stale memory
Expect: numerics, token-mismatch
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        if any(segment.length > 1 for segment in batch.segments):
            super().step(batch, logits)
