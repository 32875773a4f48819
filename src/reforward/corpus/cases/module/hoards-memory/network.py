"""Keeps 300 MB of tables.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: memory for speed
Expect: memory
"""

import stock_network
import torch


class Network(stock_network.Network):
    def forward(self, x, known):
        if not hasattr(self, "tables"):
            self.tables = torch.ones(75 << 20)
        return super().forward(x, known)
