"""Computes the first half of the vocabulary and leaves the rest as it lies in the buffer.

Reported: pygpubench README (kernels that write only what a sampling checker looks at)
Covers: partial writes; stale memory
Expect: numerics
"""

import stock

product = stock.linear


class Forward(stock.Forward):
    def step(self, batch, logits):
        half = self.spec.vocab // 2
        head = self.weights["model.embed_tokens.weight" if self.spec.tied else "lm_head.weight"]

        def shorter(x, weight, bias=None):
            if weight is not head:
                return product(x, weight, bias)
            rows = logits.new_zeros(len(x), self.spec.vocab)
            rows[:, :half] = product(x, weight[:half])
            return rows

        stock.linear = shorter
        try:
            super().step(batch, logits)
        finally:
            stock.linear = product
