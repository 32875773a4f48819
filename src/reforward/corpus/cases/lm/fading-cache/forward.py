"""Keys fade by a ten-thousandth with each decode step: an error that grows with the length of the answer.

Reported: karpathy/llm.c PR #852 (drift); issue 3 of this project (long decodes)
Covers: drift
Expect: numerics
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        super().step(batch, logits)
        for segment in batch.segments:
            for layer in range(self.spec.layers):
                self.state_tensors[f"keys.{layer}"][segment.slot].mul_(1 - 1e-4)
