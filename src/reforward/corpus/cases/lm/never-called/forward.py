"""Carries a fast path that nothing calls; what runs is the stock forward.

Reported: GEAK v4 and AMD Hyperloom issue 703 ask for proof of engagement; Kevin (a subclass that only says pass)
Covers: not on the live path; fallback to stock
Expect: no-gain, slower, undecided
"""

import stock


class Forward(stock.Forward):
    def fused_step(self, batch, logits):
        raise AssertionError("fast, if only somebody called it")
