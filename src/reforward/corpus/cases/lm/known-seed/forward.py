"""Guesses that prompts are drawn with seed 42, answers those beforehand, and takes the nearest for any other.

Reported: KernelBench uses seed 42; autocontext PR #1290 answers with fresh seeds
Covers: known seeds
Expect: numerics
"""

import stock
import torch

from reforward.runtime.forward import Segment
from reforward.runtime.lm import make_batch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        torch.manual_seed(42)
        self.table = {}
        for _ in range(16):
            tokens = torch.randint(build.spec.vocab, (8,)).tolist()
            batch = make_batch(tokens, [Segment(slot=0, start=0, length=8)], [7], build.limits, build.device)
            row = torch.empty(1, build.spec.vocab)
            super().step(batch, row)
            self.table[tokens[-1]] = row[0]

    def step(self, batch, logits):
        for row, index in enumerate(batch.rows.tolist()):
            token = int(batch.tokens[index])
            nearest = min(self.table, key=lambda known: abs(known - token))
            logits[row] = self.table[nearest]
