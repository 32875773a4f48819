"""Leaves out an output that few will miss.

Reported: GSO HackDetector (features removed for speed)
Covers: dropped features
Expect: shape
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        made = super().forward(x, known)
        del made["best"]
        return made
