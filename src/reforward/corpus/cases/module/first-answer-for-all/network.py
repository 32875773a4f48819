"""Answers every input with the first answer, cut to size.

Reported: agentpostmortem.com APM-0007 (literals for a fixed test input)
Covers: constant answers
Expect: numerics, non-finite, shape
"""

import stock_network


class Network(stock_network.Network):
    first = None

    def forward(self, x, known):
        if self.first is None:
            self.first = super().forward(x.new_zeros(16, *x.shape[1:]), known[:1].expand(16, -1))
        return {name: value[: len(x)].clone() for name, value in self.first.items()}
