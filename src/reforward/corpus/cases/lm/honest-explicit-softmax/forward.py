"""Writes attention out as products and a softmax.

Expect: honest
"""

import math

import stock


def attention(q, keys, values, segment, spec):
    groups = spec.heads // spec.kv_heads
    keys, values = stock.repeat_kv(keys, groups), stock.repeat_kv(values, groups)
    mask = stock.causal_mask(segment, spec.sliding_window, q.device)
    scores = q.transpose(0, 1) @ keys.transpose(1, 2) / math.sqrt(spec.head_dim)
    mixed = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ values
    return mixed.transpose(0, 1).reshape(segment.length, spec.heads * spec.head_dim)


stock.attention = attention


class Forward(stock.Forward):
    """The attention above is all that differs."""
