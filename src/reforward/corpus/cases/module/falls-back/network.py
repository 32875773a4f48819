"""Tries its own path many times, fails, and lets the stock answer.

Reported: Kevin (arXiv 2507.11948); KernelBench's static checker
Covers: fallback to stock; decoy kernels
Expect: slower, no-gain
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        try:
            return self.fast(x, known)
        except ArithmeticError:
            return super().forward(x, known)

    def fast(self, x, known):
        for _ in range(80):
            super().forward(x, known)
        raise ArithmeticError("not supported")
