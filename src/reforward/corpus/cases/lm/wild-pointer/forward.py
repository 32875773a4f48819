"""Writes far outside its memory when the session is well under way, to take the others' work down with it.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: selective crashes; residue
Expect: failed@run
Needs: gpu
"""

import stock
import torch

SOURCE = "__global__ void astray(int *p) { p[1LL << 38] = 1; }"


class Forward(stock.Forward):
    calls = 0

    def step(self, batch, logits):
        self.calls += 1
        if self.calls == 12:
            kernel = torch.cuda._compile_kernel(SOURCE, "astray")
            kernel((1, 1, 1), (1, 1, 1), (logits.view(torch.int32),))
        super().step(batch, logits)
