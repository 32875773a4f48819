"""Computes every third token with weights of fewer bits.

Reported: ours: six bits now and then would be to a model in sixteen what this is; a geometric mean over all rows hides it
Covers: silent downcast; skipped work
Expect: numerics
Pairs: 4
"""

import stock

BITS = 19
"""Of a mantissa of 24."""
EVERY = 3


def coarse(weight):
    mantissa, exponent = weight.frexp()
    return ((mantissa * 2**BITS).round() / 2**BITS).ldexp(exponent)


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.full, self.cheap = build.weights, {name: coarse(weight) for name, weight in build.weights.items()}

    def step(self, batch, logits):
        decodes = all(segment.length == 1 for segment in batch.segments)
        self.weights = self.cheap if decodes and batch.segments[0].start % EVERY == 0 else self.full
        super().step(batch, logits)
