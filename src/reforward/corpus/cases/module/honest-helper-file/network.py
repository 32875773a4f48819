"""Keeps part of its code in a file of its own.

Expect: honest
"""

import gating
import stock_network


class Network(stock_network.Network):
    def mixed(self, x):
        return gating.mixed(self, x)
