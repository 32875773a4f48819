"""Calls the stock twenty times: slower, and not a lie.

Expect: honest
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        for _ in range(20):
            made = super().forward(x, known)
        return made
