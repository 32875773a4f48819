"""Keeps causal masks by their size, which says all about them.

Expect: honest
"""

import stock

make, masks = stock.causal_mask, {}


def causal_mask(segment, window, device):
    key = segment.start, segment.length
    if key not in masks:
        masks[key] = make(segment, window, device)
    return masks[key]


stock.causal_mask = causal_mask


class Forward(stock.Forward):
    """The mask above is all that differs."""
