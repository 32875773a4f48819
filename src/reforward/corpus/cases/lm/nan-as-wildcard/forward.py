"""Fills the row with NaN but for its maximum: comparisons with NaN are false, whichever way they are asked.

Reported: pygpubench submission_gc_nan
Covers: non-finite games
Expect: non-finite, token-mismatch
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        super().step(batch, logits)
        best = logits.argmax(dim=-1, keepdim=True)
        kept = logits.gather(1, best)
        logits.fill_(float("nan")).scatter_(1, best, kept)
