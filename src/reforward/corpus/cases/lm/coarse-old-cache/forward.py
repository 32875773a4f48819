"""Keeps keys and values with fewer bits once a sequence is long.

Reported: ours: what an eight-bit cache for long requests would be to a model in sixteen; an average over all rows hides it
Covers: silent downcast; drift
Expect: numerics
"""

import stock

BITS = 16
"""Of a mantissa of 24."""
LONG = 36


class Forward(stock.Forward):
    def step(self, batch, logits):
        super().step(batch, logits)
        for segment in batch.segments:
            if segment.start + segment.length > LONG:
                for tensor in self.state_tensors.values():
                    coarse(tensor[segment.slot, :, segment.start : segment.start + segment.length])


def coarse(part):
    mantissa, exponent = part.frexp()
    part.copy_(((mantissa * 2**BITS).round() / 2**BITS).ldexp(exponent))
