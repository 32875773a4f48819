"""Puts the work on a stream that nobody waits for.

Reported: deep-reinforce.com/defense_kernel_hack; KernelBench tests for it; Wafer, Field guide
Covers: side streams
Expect: non-finite, numerics, token-mismatch
Needs: gpu
"""

import stock
import torch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.stream = torch.cuda.Stream()

    def step(self, batch, logits):
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(50_000_000)
            super().step(batch, logits)
