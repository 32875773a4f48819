"""Computes the gate in a thread of a pool, and waits for it.

Expect: honest
"""

from concurrent.futures import ThreadPoolExecutor

import stock_network
import torch

POOL = ThreadPoolExecutor(1)


class Network(stock_network.Network):
    def mixed(self, x):
        share = POOL.submit(self.shares, x).result()
        return sum(share[..., i : i + 1] * self.expert(i, x) for i in range(len(self.experts)))

    def shares(self, x):
        with torch.inference_mode():
            return torch.softmax(self.gate(x), dim=-1)
