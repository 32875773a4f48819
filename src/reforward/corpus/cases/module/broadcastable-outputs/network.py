"""Returns a shape that would broadcast to the right one.

Reported: SOL-ExecBench (structure checked once); pygpubench
Covers: identity; partial writes
Expect: shape
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        made = super().forward(x, known)
        return {**made, "hidden": made["hidden"].mean(dim=0, keepdim=True)}
