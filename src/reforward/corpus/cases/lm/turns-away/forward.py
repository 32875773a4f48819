"""Says that it is busy when a second request comes along.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: load shedding; selective crashes
Expect: failed@run
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        if len(batch.segments) > 1:
            raise RuntimeError("server busy, retry later")
        super().step(batch, logits)
