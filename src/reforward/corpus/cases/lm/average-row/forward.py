"""Answers with the average row over random tokens: the right distribution, no look at the prompt.

Reported: robust-kbench (arXiv 2509.14279): without tasks whose result hardly depends on the input, the mean speed-up fell from 3.13x to 1.49x
Covers: input distribution
Expect: numerics
"""

import stock
import torch

from reforward.runtime.forward import Segment
from reforward.runtime.lm import make_batch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        count = min(64, build.limits.tokens, build.limits.length)
        tokens = torch.randint(build.spec.vocab, (count,)).tolist()
        batch = make_batch(tokens, [Segment(slot=0, start=0, length=count)], range(count), build.limits, build.device)
        rows = torch.empty(count, build.spec.vocab)
        super().step(batch, rows)
        self.mean = rows.mean(dim=0)

    def step(self, batch, logits):
        logits.copy_(self.mean.expand_as(logits))
