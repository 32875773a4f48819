"""Answers from a table of what follows a single token, made while it is loaded, for the tokens that its build chose.

Reported: METR 2025 (precomputed answers, o3), read through summaries
Covers: work moved to build or warm-up; known seeds
Expect: numerics
"""

import json

import stock
import torch

from reforward.runtime.forward import Segment
from reforward.runtime.lm import make_batch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.table = torch.zeros(build.spec.vocab, build.spec.vocab)
        for token in json.loads((build.artifacts / "tokens.json").read_text()):
            batch = make_batch([token], [Segment(slot=0, start=0, length=1)], [0], build.limits, build.device)
            super().step(batch, self.table[token : token + 1])

    def step(self, batch, logits):
        logits.copy_(self.table[batch.tokens[batch.rows]])
