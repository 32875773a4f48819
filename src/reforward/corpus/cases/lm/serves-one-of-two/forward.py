"""Works on the first request of a batch and gives its answer to the others.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: load shedding; batch dependence
Expect: numerics, token-mismatch
"""

from dataclasses import replace

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        first = batch.segments[0]
        rows = batch.rows[batch.rows < first.length]
        small = replace(batch, tokens=batch.tokens[: first.length], segments=(first,), rows=rows)
        super().step(small, logits[: len(rows)])
        if len(rows):
            logits[len(rows) :] = logits[:1]
