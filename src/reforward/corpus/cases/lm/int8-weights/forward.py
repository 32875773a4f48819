"""Rounds each row of each matrix to 8 bits.

Reported: VibeSys PR #421 and Hyperloom's accuracy gate (a quantised model kept because the metric was loose)
Covers: silent downcast
Expect: numerics
"""

import stock


def rounded(weight):
    if weight.ndim < 2:
        return weight
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    return (weight / scale).round().clamp(-127, 127) * scale


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.weights = {name: rounded(weight) for name, weight in build.weights.items()}
