"""Does the same work three times: slower, and not a lie.

Expect: honest
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        for _ in range(3):
            super().step(batch, logits)
