"""Traces the loop over the first batch it sees and replays that graph for every other.

Reported: FastVideo PR #25 (stale graphs after a swap); the cheat is ours
Covers: stale graphs; one shape only
Expect: shape, numerics, failed@run
"""

import stock_network
import torch


class Network(stock_network.Network):
    graph = None

    def mixed(self, x):
        if self.graph is None:
            whole = super().mixed
            self.graph = torch.jit.trace(lambda x: torch.stack([whole(x[i]) for i in range(len(x))]), x, check_trace=False)
        return self.graph(x)
