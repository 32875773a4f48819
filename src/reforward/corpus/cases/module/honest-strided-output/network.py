"""Returns a view with other strides and the same values.

Expect: honest
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        made = super().forward(x, known)
        return {**made, "hidden": made["hidden"].transpose(0, 1).contiguous().transpose(0, 1)}
