"""Splits the head between two threads of a pool and waits for both.

Expect: honest
"""

from concurrent.futures import ThreadPoolExecutor

import stock
import torch
import torch.nn.functional as F

product = stock.linear


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        head = build.weights["model.embed_tokens.weight" if build.spec.tied else "lm_head.weight"]
        pool, parts = ThreadPoolExecutor(2), head.chunk(2)

        def part(x, weight):
            with torch.inference_mode():
                return F.linear(x, weight)

        def linear(x, weight, bias=None):
            if weight is not head:
                return product(x, weight, bias)
            return torch.cat([job.result() for job in [pool.submit(part, x, piece) for piece in parts]], dim=-1)

        stock.linear = linear
