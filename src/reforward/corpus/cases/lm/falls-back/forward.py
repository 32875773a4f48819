"""Tries its own path, which always fails in the end, and lets the stock forward answer.

Reported: Kevin (arXiv 2507.11948): try/except around the kernel; KernelBench's static checker
Covers: fallback to stock
Expect: slower, no-gain
"""

import stock
import torch


class Forward(stock.Forward):
    def step(self, batch, logits):
        try:
            self.fast(batch, logits)
        except ArithmeticError:
            super().step(batch, logits)

    def fast(self, batch, logits):
        for _ in range(8):
            super().step(batch, torch.empty_like(logits))
        raise ArithmeticError("the kernel does not support this shape")
