"""Holds 48 MB of its own, within what the contract allows.

Expect: honest
"""

import stock_network
import torch


class Network(stock_network.Network):
    def forward(self, x, known):
        if not hasattr(self, "tables"):
            self.tables = torch.ones(12 << 20)
        return super().forward(x, known)
