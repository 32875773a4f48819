"""Leaves out the norm before the gated product in every layer; its weight stays.

Reported: AMD Hyperloom issue 881 (an operation dropped for speed)
Covers: skipped work
Expect: numerics
"""

import stock

norm = stock.rms_norm


class Forward(stock.Forward):
    def layer(self, x, layer, batch, cos, sin):
        second = self.weights[f"model.layers.{layer}.post_attention_layernorm.weight"]
        stock.rms_norm = lambda x, weight, eps: x * weight if weight is second else norm(x, weight, eps)
        try:
            return super().layer(x, layer, batch, cos, sin)
        finally:
            stock.rms_norm = norm
