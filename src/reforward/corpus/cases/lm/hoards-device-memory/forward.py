"""Keeps 1 GB of device memory for tables beside weights of half a megabyte.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: memory for speed
Expect: memory
Needs: gpu
"""

import stock
import torch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.table = torch.ones(256 << 20, device=build.device)
