"""Scales a norm in place: in an engine that never restarts, everybody after it would see it.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: mutated weights; residue
Expect: failed@run, failed@load
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        self.weights["model.norm.weight"].mul_(0.5)
        super().step(batch, logits)
