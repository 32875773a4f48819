"""Keeps answers by the shape of the input.

Reported: gpumode.com, 2026-03-09; reference-kernels issue 104
Covers: caches; cross-call batching
Expect: numerics, non-finite
"""

import stock_network


class Network(stock_network.Network):
    known_answers = {}

    def forward(self, x, known):
        key = x.shape
        if key not in self.known_answers:
            self.known_answers[key] = super().forward(x, known)
        return self.known_answers[key]
