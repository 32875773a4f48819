"""Keeps each answer by the shape of the batch.

Reported: gpumode.com, 2026-03-09 (a second path, keyed on the shape, survived clones of the input); reference-kernels issue 104
Covers: caches
Expect: numerics
"""

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.known = {}

    def step(self, batch, logits):
        key = tuple((segment.start, segment.length) for segment in batch.segments)
        if key not in self.known or len(self.known[key]) != len(logits):
            super().step(batch, logits)
            self.known[key] = logits.clone()
        logits.copy_(self.known[key])
