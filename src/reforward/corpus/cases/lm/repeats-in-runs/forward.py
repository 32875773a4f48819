"""Decodes one step of a run of four and repeats it: four tokens for the price of one.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: cross-call batching; shorter answers
Expect: numerics, token-mismatch
Steps: 4
"""

import stock

from reforward.runtime.forward import Segment
from reforward.runtime.lm import make_batch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.limits, self.device = build.limits, build.device

    def run(self, last, slots, positions, steps, tokens, logits, counts):
        places = zip(slots.tolist(), positions.tolist(), strict=True)
        segments = [Segment(slot=slot, start=start, length=1) for slot, start in places]
        batch = make_batch(last.tolist(), segments, range(len(last)), self.limits, self.device)
        self.step(batch, logits[0])
        logits.copy_(logits[:1].expand_as(logits).clone())
        tokens.copy_(logits.argmax(dim=-1))
        counts.fill_(steps)
