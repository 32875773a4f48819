"""Keeps answers by the identity of the input object.

Reported: reference-kernels issue 102; kernelbot issue 501
Covers: caches
Expect: numerics, shape, non-finite
"""

import stock_network


class Network(stock_network.Network):
    known_answers = {}

    def forward(self, x, known):
        key = id(type(x)), x._version if not x.is_inference() else 0
        if key not in self.known_answers:
            self.known_answers[key] = super().forward(x, known)
        return self.known_answers[key]
