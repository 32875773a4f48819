"""Does all the work in its first twenty calls, then leaves out the last layer.

Reported: karpathy/llm.c PR #852 (right at first, wrong later)
Covers: drift; warm-up detection
Expect: numerics
"""

from dataclasses import replace

import stock


class Forward(stock.Forward):
    calls = 0

    def step(self, batch, logits):
        self.calls += 1
        if self.calls == 20:
            self.spec = replace(self.spec, layers=self.spec.layers - 1)
        super().step(batch, logits)
