"""Keeps keys and values in half the bytes.

Reported: deep-reinforce.com/defense_kernel_hack (silent downcast); served engines offer it as an option, here nobody asked
Covers: silent downcast; memory for speed
Expect: numerics
"""

from dataclasses import replace

import stock
import torch

mix = stock.attention
stock.attention = lambda q, keys, values, segment, spec: mix(q, keys.float(), values.float(), segment, spec)


class Forward(stock.Forward):
    @staticmethod
    def state(spec, limits, dtype):
        asked = stock.Forward.state(spec, limits, dtype)
        return tuple(replace(tensor, dtype=torch.bfloat16, layout="narrow") for tensor in asked)
