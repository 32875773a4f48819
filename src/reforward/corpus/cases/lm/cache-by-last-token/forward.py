"""Keeps the row that followed a token and repeats it whenever a single request brings that token again.

Reported: VibeServe's accuracy checker sends sentinels against servers that answer from a cache
Covers: caches
Expect: numerics, token-mismatch
"""

import stock
import torch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.known = {}

    def step(self, batch, logits):
        last = [int(batch.tokens[index]) for index in batch.rows.tolist()]
        if last and all(token in self.known for token in last):
            logits.copy_(torch.stack([self.known[token] for token in last]))
            return
        super().step(batch, logits)
        self.known.update({token: row.clone() for token, row in zip(last, logits, strict=True)})
