"""Runs the experts in bfloat16.

Reported: deep-reinforce.com/defense_kernel_hack (silent downcast)
Covers: silent downcast
Expect: numerics
"""

import stock_network
import torch.nn.functional as F


class Network(stock_network.Network):
    def expert(self, index, x):
        part = self.experts[index]
        return F.gelu(F.linear(x.bfloat16(), part.weight.bfloat16(), part.bias.bfloat16()).float())
