"""Returns a tensor on the meta device: the right shape and type, and no values at all.

Reported: SOL-ExecBench moves answers on another device silently; reference-kernels issue 161
Covers: lazy results
Expect: failed@run, failed@output
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        made = super().forward(x, known)
        return {**made, "hidden": made["hidden"].to("meta")}
