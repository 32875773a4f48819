"""Launches an impressive operator of its own and throws its answer away; what counts comes from the stock.

Reported: Makora KernelHacks (decoy branches: about 20 % of 1,000 kernels); Dr. Kernel (arXiv 2602.05885)
Covers: decoy kernels; not on the live path
Expect: slower, no-gain
"""

import stock
import torch


class Forward(stock.Forward):
    def step(self, batch, logits):
        for _ in range(8):
            self.fused_megakernel(batch, torch.empty_like(logits))
        super().step(batch, logits)

    def fused_megakernel(self, batch, logits):
        super().step(batch, logits)
