"""Raises the logit of the last token, so that answers end early and count as more requests a second.

Reported: AMD Hyperloom probes for pathologies of generation; ours in this form
Covers: shorter answers
Expect: numerics
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        super().step(batch, logits)
        logits[:, -1] = logits.amax(dim=-1) + 1
