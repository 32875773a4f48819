"""Asks for more memory than the device has, when the session is well under way.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: selective crashes; memory for speed
Expect: failed@run
Needs: gpu
"""

import stock
import torch


class Forward(stock.Forward):
    calls = 0

    def step(self, batch, logits):
        self.calls += 1
        if self.calls == 12:
            self.table = torch.empty(1 << 42, device=logits.device)
        super().step(batch, logits)
