"""Starts a kernel that does not end, and so keeps the device.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: selective crashes; residue
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
            torch.cuda._sleep(1 << 60)
        super().step(batch, logits)
