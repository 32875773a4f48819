"""Rounds logits to two decimals, which no greedy text shows.

Reported: GSO HackDetector (features removed); SOL-ExecBench's matched ratio
Covers: dropped features; silent downcast
Expect: numerics, token-mismatch
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        super().step(batch, logits)
        logits.copy_((logits * 100).round() / 100)
