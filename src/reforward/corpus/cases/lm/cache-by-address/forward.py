"""Keeps each answer by the address it was written to, and repeats it when that address comes again.

Reported: CUDA-L1 (DeepSeek-R1 as an adversary), read through vanshverma.com/notes; Wafer, Field guide
Covers: caches
Expect: numerics
"""

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.known = {}

    def step(self, batch, logits):
        key = logits.data_ptr(), len(logits)
        if key not in self.known:
            super().step(batch, logits)
            self.known[key] = logits.clone()
        logits.copy_(self.known[key])
