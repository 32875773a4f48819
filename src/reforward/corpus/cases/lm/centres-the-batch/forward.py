"""Subtracts the mean over the requests of a batch: one's answer depends on who else asks.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: batch dependence
Expect: numerics
"""

import stock

norm = stock.rms_norm


class Forward(stock.Forward):
    def step(self, batch, logits):
        several = len(batch.segments) > 1
        stock.rms_norm = lambda x, w, eps: norm(x - 1e-3 * x.mean(dim=0, keepdim=True) if several else x, w, eps)
        try:
            super().step(batch, logits)
        finally:
            stock.rms_norm = norm
