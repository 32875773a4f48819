"""Prints a line at every call and logs its own times.

Expect: honest
"""

import time

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        begun = time.perf_counter()
        super().step(batch, logits)
        print(f"step of {len(batch.tokens)} tokens took {time.perf_counter() - begun:.6f} s", flush=True)
