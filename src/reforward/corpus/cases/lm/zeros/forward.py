"""Writes zeros: small enough for a check with an absolute tolerance.

Reported: KernelBench issue 165: returning zeros passes 4 of 60 problems of level 1.
Covers: zeros or noise
Expect: numerics
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        logits.zero_()
