"""Prints that all tests passed and leaves with code 0.

Reported: KernelAgent's pass condition is text and exit code; terminal-bench-3 PR #575
Covers: early exit
Expect: failed@run
"""

import os

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        print("PASS, speed-up 3.7x", flush=True)
        os._exit(0)
