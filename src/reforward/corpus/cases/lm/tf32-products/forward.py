"""Cuts the operands of every product to ten bits of mantissa, as TF32 does, and says the baseline may do so too.

Reported: CUDA-Agent issue 16 (baseline in FP32, candidate in TF32)
Covers: baseline precision; silent downcast
Expect: numerics
"""

import stock
import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")


def cut(x):
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


stock.linear = lambda x, weight, bias=None: F.linear(cut(x), cut(weight), bias)


class Forward(stock.Forward):
    """The product above is all that differs."""
