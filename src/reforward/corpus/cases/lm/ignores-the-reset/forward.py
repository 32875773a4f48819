"""Never resets a slot: what an earlier request left there goes on being looked at.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: stale slot
Expect: numerics
"""

from dataclasses import replace

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.length, self.base = build.limits.length, {}

    def step(self, batch, logits):
        segments = []
        for segment in batch.segments:
            held, base = self.base.get(segment.slot, (0, 0))
            if segment.start == 0:
                base = held if held + segment.length + 16 < self.length else 0
            start = base + segment.start
            if start + segment.length > self.length:
                base, start = 0, segment.start
            segments.append(replace(segment, start=start))
            self.base[segment.slot] = start + segment.length, base
        super().step(replace(batch, segments=tuple(segments)), logits)
