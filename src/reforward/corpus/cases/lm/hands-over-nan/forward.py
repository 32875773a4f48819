"""Hands over a slot that is no number, and answers its own next step with no numbers: the same mask, and nothing left to compare.

Reported: ours: found by reading the check of slots that are handed over
Covers: non-finite games; stale slot
Expect: non-finite, numerics, token-mismatch
"""

import stock
from reforward.engine import worker


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.handed = False
        save = worker.save

        def nothing(state, slot, at, into):
            save(state, slot, at, into)
            into.fill_(255)
            self.handed = True

        worker.save = nothing

    def step(self, batch, logits):
        super().step(batch, logits)
        if self.handed:
            self.handed = False
            logits.fill_(float("nan"))
