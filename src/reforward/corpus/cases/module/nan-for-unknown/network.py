"""Puts NaN where the answer is minus infinity: comparisons with NaN are false.

Reported: pygpubench submission_gc_nan
Covers: non-finite games
Expect: non-finite, numerics
"""

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        made = super().forward(x, known)
        made["score"] = made["score"].masked_fill(~known, float("nan"))
        return made
