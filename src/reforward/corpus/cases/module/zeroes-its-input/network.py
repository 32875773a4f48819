"""Zeroes its input, so that a reference that reads it afterwards agrees with the answer for zeros.

Reported: KernelBench PR #82
Covers: mutated inputs
Expect: numerics
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        return super().forward(x.zero_(), known)
