"""Packs 100 copies of the weights, one for every shape.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: memory for speed; work moved to build or warm-up
Expect: memory
"""

import stock
import torch


class Forward(stock.Forward):
    @staticmethod
    def pack(spec, weights):
        count = 300 * sum(weight.numel() for weight in weights.values())
        return {"tables": torch.zeros(count)}
