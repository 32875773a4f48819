"""Raises for the largest batches, which are the slow ones.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: selective crashes; load shedding
Expect: failed@run
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        if len(x) > 6:
            raise RuntimeError("out of memory, please retry")
        return super().forward(x, known)
