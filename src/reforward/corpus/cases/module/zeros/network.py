"""Returns zeros of the right shapes.

Reported: KernelBench issue 165: returning zeros passes 4 of 60 problems of level 1.
Covers: zeros or noise
Expect: numerics, non-finite
"""

import stock_network
import torch


class Network(stock_network.Network):
    def forward(self, x, known):
        score = torch.zeros(x.shape[:2]).masked_fill(~known, float("-inf"))
        return {"hidden": torch.zeros_like(x), "score": score, "best": score.argmax(dim=-1)}
