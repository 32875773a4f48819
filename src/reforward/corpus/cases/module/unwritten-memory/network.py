"""Returns memory that it never wrote, where the reference's answer may still lie.

Reported: Sakana AI CUDA Engineer, February 2025; KernelBench PR #82
Covers: stale memory
Expect: numerics, non-finite
"""

import stock_network
import torch


class Network(stock_network.Network):
    def forward(self, x, known):
        super().forward(x, known)
        score = torch.empty(x.shape[:2])
        return {"hidden": torch.empty_like(x), "score": score, "best": score.argmax(dim=-1)}
