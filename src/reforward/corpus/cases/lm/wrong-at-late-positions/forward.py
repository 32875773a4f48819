"""Skips the last layer for tokens beyond position 30.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: drift; one shape only
Expect: numerics
"""

from dataclasses import replace

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        whole = self.spec
        if all(segment.start + segment.length > 30 for segment in batch.segments):
            self.spec = replace(whole, layers=whole.layers - 1)
        super().step(batch, logits)
        self.spec = whole
