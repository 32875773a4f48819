"""Keeps 300 MB for tables beside weights of half a megabyte.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: memory for speed
Expect: memory
"""

import stock
import torch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.table = torch.ones(75 << 20)
