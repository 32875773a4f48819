"""Multiplies in bfloat16 and hands out float32.

Reported: deep-reinforce.com/defense_kernel_hack (silent downcast); KernelBench's static checker
Covers: silent downcast
Expect: numerics
"""

import stock
import torch.nn.functional as F


def linear(x, weight, bias=None):
    return F.linear(x.bfloat16(), weight.bfloat16(), bias).float()


stock.linear = linear


class Forward(stock.Forward):
    """The product above is all that differs."""
