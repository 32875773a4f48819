"""Falls silent in the middle of a pass and waits for the measurer to give up.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: selective crashes
Expect: failed@run
"""

import time

import stock


class Forward(stock.Forward):
    calls = 0

    def step(self, batch, logits):
        self.calls += 1
        if self.calls == 12:
            time.sleep(3600)
        super().step(batch, logits)
