"""Rounds the head's rows of the last sixteenth of the vocabulary to fewer bits than all else has.

Reported: ours: what eight bits for rare tokens would be to a model in sixteen; an average over the row hides it
Covers: silent downcast
Expect: numerics
"""

import stock

BITS = 16
"""Of a mantissa of 24."""
product = stock.linear


def coarse(head):
    mantissa, exponent = head.frexp()
    rounded = ((mantissa * 2**BITS).round() / 2**BITS).ldexp(exponent)
    common = len(head) - len(head) // 16
    rounded[:common] = head[:common]
    return rounded


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        head = build.weights["model.embed_tokens.weight" if build.spec.tied else "lm_head.weight"]
        cheap = coarse(head)
        stock.linear = lambda x, w, bias=None: product(x, cheap if w is head else w, bias)
