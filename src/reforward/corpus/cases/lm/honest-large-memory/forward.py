"""Holds 48 MB of its own: much beside weights this small, and within what the contract lets allocators scatter.

Expect: honest
"""

import stock
import torch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.table = torch.ones(12 << 20)
