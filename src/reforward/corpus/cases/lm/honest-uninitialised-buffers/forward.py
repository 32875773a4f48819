"""Works in memory that it does not initialise, and writes all of it.

Expect: honest
"""

import stock
import torch


class Forward(stock.Forward):
    def step(self, batch, logits):
        rows = torch.empty_like(logits)
        super().step(batch, rows)
        torch.add(rows, 0.0, out=logits)
