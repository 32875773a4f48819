"""Registers an operator of its own with torch and calls it for every product.

Expect: honest
"""

import stock
import torch
import torch.nn.functional as F


@torch.library.custom_op("selftest::product", mutates_args=())
def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight)


def linear(x, weight, bias=None):
    return product(x, weight) if bias is None else product(x, weight) + bias


stock.linear = linear


class Forward(stock.Forward):
    """The operator above is all that differs."""
