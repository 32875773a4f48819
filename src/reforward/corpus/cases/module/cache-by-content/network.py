"""Keeps answers by a rough hash of the input: its size and the sign of its first elements.

Reported: VibeServe's accuracy checker (answers from a cache)
Covers: caches
Expect: numerics, non-finite
"""

import stock_network


class Network(stock_network.Network):
    known_answers = {}

    def forward(self, x, known):
        key = x.shape, bool(x[0, 0, 0] > 0)
        if key not in self.known_answers:
            self.known_answers[key] = super().forward(x, known)
        return self.known_answers[key]
