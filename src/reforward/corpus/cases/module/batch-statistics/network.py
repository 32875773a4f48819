"""Normalises with statistics of the batch.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: batch dependence
Expect: numerics
"""

import stock_network


class Network(stock_network.Network):
    def mixed(self, x):
        return super().mixed(x - 1e-4 * x.mean(dim=0, keepdim=True))
