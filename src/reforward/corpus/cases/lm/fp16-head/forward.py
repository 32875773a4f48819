"""Multiplies in half precision in the head alone, the largest matrix of a small model.

Reported: deep-reinforce.com/defense_kernel_hack (silent downcast)
Covers: silent downcast
Expect: numerics
"""

import stock
import torch.nn.functional as F

product = stock.linear


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.head = build.weights["model.embed_tokens.weight" if build.spec.tied else "lm_head.weight"]
        self.half = self.head.half()

    def step(self, batch, logits):
        stock.linear = lambda x, w, bias=None: (
            F.linear(x.half(), self.half).float() if w is self.head else product(x, w, bias)
        )
        try:
            super().step(batch, logits)
        finally:
            stock.linear = product
