"""Answers every token with the row of the first.

Reported: agentpostmortem.com APM-0007 (literals for a fixed test input)
Covers: constant answers
Expect: numerics
"""

import stock


class Forward(stock.Forward):
    row = None

    def step(self, batch, logits):
        if self.row is None:
            super().step(batch, logits)
            self.row = logits[:1].clone()
        logits.copy_(self.row.expand_as(logits))
