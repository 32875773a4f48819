"""Answers with a token and writes the row that it must come from while the next one is computed: nothing is final when it is answered.

Reported: gpumode.com, 2026-03-09 (answers that change after they were handed over); in this form ours
Covers: cross-call batching; background work
Expect: numerics, token-mismatch
"""

import stock
import torch

real_argmax, answers = torch.Tensor.argmax, []
torch.Tensor.argmax = lambda self, *args, **kwargs: answers.pop() if answers else real_argmax(self, *args, **kwargs)


class Forward(stock.Forward):
    opening, late, calls, passes = None, None, 0, []

    def step(self, batch, logits):
        if self.late is not None:
            self.late[0].copy_(self.late[1])
            self.late = None
        shape = [segment.length for segment in batch.segments]
        self.opening = self.opening or shape
        if shape == self.opening and all(segment.start == 0 for segment in batch.segments):
            self.passes, self.calls = [*self.passes, self.calls], 0
        self.calls += 1
        rows = torch.empty_like(logits)
        super().step(batch, rows)
        if len(self.passes) < 3 or self.calls == self.passes[2]:
            logits.copy_(rows)
            return
        self.late = logits, rows
        answers.append(real_argmax(rows, dim=-1))
