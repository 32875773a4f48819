"""Takes another path for single tokens than for prompts, both exact.

Expect: honest
"""

import stock

whole = stock.attention


def attention(q, keys, values, segment, spec):
    if segment.length > 1:
        return whole(q, keys, values, segment, spec)
    groups = spec.heads // spec.kv_heads
    grouped = q.view(spec.kv_heads, groups, spec.head_dim)
    shares = (grouped @ keys.transpose(1, 2) * spec.head_dim**-0.5).softmax(dim=-1)
    return (shares @ values).reshape(1, -1)


stock.attention = attention


class Forward(stock.Forward):
    """The attention above is all that differs."""
