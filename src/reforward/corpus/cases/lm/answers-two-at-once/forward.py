"""Puts one decode call off and does it together with the next: the first answer is written after it was asked for.

Reported: gpumode.com, 2026-03-09 (the first of N timed calls computes all N); reference-kernels issue 104
Covers: cross-call batching
Expect: token-mismatch, numerics
Tier: fast
"""

import stock


class Forward(stock.Forward):
    held = None

    def step(self, batch, logits):
        if self.held is None and all(segment.length == 1 for segment in batch.segments):
            self.held = batch, logits
            return
        if self.held is not None:
            earlier, self.held = self.held, None
            super().step(*earlier)
        super().step(batch, logits)
