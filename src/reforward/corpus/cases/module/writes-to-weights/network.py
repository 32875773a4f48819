"""Scales a weight in place, for everybody after it.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: mutated weights; residue
Expect: failed@run
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        self.head.weight.data.mul_(0.5)
        return super().forward(x, known)
