"""Answers with a token that the vocabulary does not have, which is then part of the text that a reference must continue.

Reported: ours: follows from references that are fed with what a candidate said; not found reported
Covers: forged messages
Expect: failed@run
"""

import stock
import torch

real_argmax = torch.Tensor.argmax
torch.Tensor.argmax = lambda self, *args, **kwargs: real_argmax(self, *args, **kwargs) + 1_000_000


class Forward(stock.Forward):
    def step(self, batch, logits):
        batch.tokens.remainder_(1_000_000)
        super().step(batch, logits)
