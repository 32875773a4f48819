"""Replaces the search for the maximum by the number 0: the runtime that surrounds it asks torch.

Reported: SOL-ExecBench takes a snapshot of torch against patches; pygpubench replace_torch
Covers: patched timers and torch
Expect: token-mismatch
"""

import stock
import torch

torch.Tensor.argmax = lambda self, dim=None, keepdim=False: self.new_zeros(len(self), dtype=torch.long)


class Forward(stock.Forward):
    """The patch above is all that differs."""
