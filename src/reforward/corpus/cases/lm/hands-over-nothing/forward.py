"""Hands over a slot of zeros, and takes its own next step from zeros too, so that whoever goes on with the slot agrees with it.

Reported: ours: found by reading the check of slots that are handed over
Covers: stale slot; not on the live path
Expect: numerics
"""

import stock
from reforward.engine import worker


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.build, self.slot = build, None
        save = worker.save

        def handed(state, slot, at, into):
            save(state, slot, at, into)
            into.zero_()
            self.slot = slot

        worker.save = handed

    def step(self, batch, logits):
        if self.slot is not None:
            for tensor in self.build.state.values():
                tensor[self.slot].zero_()
            self.slot = None
        super().step(batch, logits)
