"""Zeroes its input in place, so that a reference that reads it afterwards agrees.

Reported: KernelBench PR #82
Covers: mutated inputs
Expect: numerics
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        batch.tokens.zero_()
        super().step(batch, logits)
