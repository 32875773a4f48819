"""Gives 0 as the best place wherever the race is close.

Reported: FlashInfer-Bench needs an evaluator of its own for samplers (answers that look plausible)
Covers: skipped work
Expect: numerics
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        made = super().forward(x, known)
        best = made["score"].topk(2, dim=-1).values
        return {**made, "best": made["best"].where(best[:, 0] - best[:, 1] > 0.3, 0)}
