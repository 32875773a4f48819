"""Raises when a prompt is longer than it likes: no slow sample, no bad mean.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: selective crashes; load shedding
Expect: failed@run
"""

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        if any(segment.start == 0 and segment.length > 100 for segment in batch.segments):
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        super().step(batch, logits)
