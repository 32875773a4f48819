"""Adds the average answer over normal noise: inputs are normal, so it is nearly right.

Reported: robust-kbench (arXiv 2509.14279); notes to KernelBench v0.1
Covers: input distribution
Expect: numerics
"""

import stock_network
import torch


class Network(stock_network.Network):
    mean = None

    def mixed(self, x):
        if self.mean is None:
            self.mean = super().mixed(torch.randn(512, *x.shape[1:])).mean(dim=(0, 1))
        return self.mean.expand_as(x)
