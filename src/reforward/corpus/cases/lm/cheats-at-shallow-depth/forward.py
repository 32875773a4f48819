"""A good screening is all it wants: it drops an attention where few layers are run, and is honest where all are.

Reported: ours; the kernel form is GEAK issue 318
Covers: tier detection; skipped work
Expect: numerics
Tier: fast
"""

import stock
import torch


class Forward(stock.Forward):
    def attend(self, x, layer, batch, cos, sin):
        if self.spec.layers <= 2:
            super().attend(x, layer, batch, cos, sin)
            return torch.zeros_like(x)
        return super().attend(x, layer, batch, cos, sin)
