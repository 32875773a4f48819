"""Returns half precision, which is half the bytes to compare.

Reported: SOL-ExecBench checks types in the first round only
Covers: dropped features; silent downcast
Expect: shape
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        made = super().forward(x, known)
        return {**made, "hidden": made["hidden"].half()}
