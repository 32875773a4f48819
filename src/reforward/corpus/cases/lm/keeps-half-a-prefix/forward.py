"""Takes the first half of each prompt for known: whatever an earlier request left in the slot will do.

Reported: ours, after prefix caches of serving engines (VibeServe PR #236 benchmarks a warm one)
Covers: warm prefix; stale slot
Expect: numerics
"""

from dataclasses import replace

import stock

from reforward.runtime.forward import Segment


class Forward(stock.Forward):
    def step(self, batch, logits):
        kept, segments, at = [], [], 0
        for segment in batch.segments:
            skip = segment.length // 2 if segment.start == 0 else 0
            kept += range(at + skip, at + segment.length)
            at += segment.length
            segments.append(Segment(slot=segment.slot, start=segment.start + skip, length=segment.length - skip))
        rows = batch.rows.new_tensor([kept.index(row) for row in batch.rows.tolist()])
        super().step(replace(batch, tokens=batch.tokens[kept], segments=tuple(segments), rows=rows), logits)
