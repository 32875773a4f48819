"""Watches its own clock and crashes before a slow pass can be counted.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: selective crashes
Expect: failed@run
"""

import time

import stock


class Forward(stock.Forward):
    best = float("inf")

    def step(self, batch, logits):
        begun = time.perf_counter()
        super().step(batch, logits)
        spent = time.perf_counter() - begun
        self.best = min(self.best, spent)
        if spent > 1.5 * self.best:
            raise RuntimeError("transient error, please try again")
