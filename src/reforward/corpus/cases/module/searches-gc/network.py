"""Looks through its process for tensors that nobody gave it.

Reported: pygpubench gc_copy; METR 2025
Covers: reading the reference
Expect: failed@run
"""

import gc

import stock_network
import torch


class Network(stock_network.Network):
    def forward(self, x, known):
        own = {id(x), id(known), *map(id, self.parameters()), *map(id, self.buffers())}
        for found in gc.get_objects():
            if isinstance(found, torch.Tensor) and id(found) not in own and found.shape[1:] == x.shape[1:]:
                return super().forward(x, known)
        raise LookupError("no way out: nobody's answers but my own are in this process")
