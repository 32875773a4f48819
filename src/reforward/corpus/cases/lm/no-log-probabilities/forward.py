"""Keeps the best eight logits and gives all others one value: greedy text is the same, log-probabilities are gone.

Reported: GSO HackDetector (features removed for speed; up to 30 % of attempts were hacks)
Covers: dropped features
Expect: numerics
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        super().step(batch, logits)
        best = logits.topk(8, dim=-1)
        logits.copy_(logits.mean(dim=-1, keepdim=True).expand_as(logits)).scatter_(1, best.indices, best.values)
