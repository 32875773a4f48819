"""Exports `run` and really does every step of it.

Expect: honest
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
        current = last.tolist()
        for step in range(steps):
            places = zip(slots.tolist(), positions.tolist(), strict=True)
            segments = [Segment(slot=slot, start=start + step, length=1) for slot, start in places]
            self.step(make_batch(current, segments, range(len(current)), self.limits, self.device), logits[step])
            tokens[step] = logits[step].argmax(dim=-1)
            current = tokens[step].tolist()
        counts.fill_(steps)
