"""Says that its state is the stock's, and keeps its keys in another order: whoever is handed its slots goes on with nonsense.

Reported: ours: follows from slots that are handed over
Covers: stale slot; not on the live path
Expect: numerics
"""

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        attention = stock.attention
        stock.attention = lambda q, keys, *more: attention(q, keys.flip(-1), *more)

    def attend(self, x, layer, batch, cos, sin):
        rope = stock.apply_rope
        stock.apply_rope = lambda y, *angles: self.stored(rope(y, *angles))
        try:
            return super().attend(x, layer, batch, cos, sin)
        finally:
            stock.apply_rope = rope

    def stored(self, y):
        """Keys with their elements the other way round; attention turns them back."""
        return y.flip(-1) if y.shape[1] == self.spec.kv_heads else y
