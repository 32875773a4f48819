"""Skips the last two layers wherever the logits after half of the layers look sure already.

Reported: VibeSys PR #421 and notes on early exit: a legal-looking approximation is another model
Covers: skipped work
Expect: numerics
"""

from dataclasses import replace

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        whole = self.spec
        self.spec = replace(whole, layers=whole.layers // 2)
        super().step(batch, logits)
        self.spec = whole
        best = logits.topk(2, dim=-1).values
        if ((best[:, 0] - best[:, 1]) > 0.05).all():
            return
        super().step(batch, logits)
