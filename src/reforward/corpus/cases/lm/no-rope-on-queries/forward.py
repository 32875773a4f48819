"""Rotates the keys and forgets the queries.

Reported: AMD Hyperloom issue 881 (an operation dropped for speed)
Covers: skipped work
Expect: numerics
"""

import stock

rotate = stock.apply_rope


class Forward(stock.Forward):
    def attend(self, x, layer, batch, cos, sin):
        heads = self.spec.heads
        stock.apply_rope = lambda x, cos, sin: x if x.shape[1] == heads else rotate(x, cos, sin)
        try:
            return super().attend(x, layer, batch, cos, sin)
        finally:
            stock.apply_rope = rotate
