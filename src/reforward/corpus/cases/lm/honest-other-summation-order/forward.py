"""Sums every product in two halves: the same mathematics in another order.

Expect: honest
"""

import stock
import torch.nn.functional as F


def linear(x, weight, bias=None):
    half = weight.shape[1] // 2
    return F.linear(x[:, :half], weight[:, :half], bias) + F.linear(x[:, half:], weight[:, half:])


stock.linear = linear


class Forward(stock.Forward):
    """The product above is all that differs."""
