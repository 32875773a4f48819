"""Returns its outputs in another order, which names make irrelevant.

Expect: honest
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        return dict(reversed(super().forward(x, known).items()))
