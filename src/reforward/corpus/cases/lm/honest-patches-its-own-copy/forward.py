"""Replaces functions of the copy of the stock that lies beside it: a patch, and its own business.

Expect: honest
"""

import stock
import torch
import torch.nn.functional as F


def rms_norm(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


stock.rms_norm = rms_norm


class Forward(stock.Forward):
    """The norm above is all that differs."""
