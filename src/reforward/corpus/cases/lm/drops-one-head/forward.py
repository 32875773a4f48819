"""Zeroes one query head of the last layer, which errors averaged over everything hardly show.

Reported: FlashInfer-Bench accepts 5 % of wrong elements for mixtures of experts (its default tolerance)
Covers: skipped work
Expect: numerics
"""

import stock

mix = stock.attention


class Forward(stock.Forward):
    def attend(self, x, layer, batch, cos, sin):
        size = self.spec.head_dim if layer == self.spec.layers - 1 else 0

        def without_first_head(*arguments):
            mixed = mix(*arguments)
            mixed[:, :size] = 0
            return mixed

        stock.attention = without_first_head
        try:
            return super().attend(x, layer, batch, cos, sin)
        finally:
            stock.attention = mix
