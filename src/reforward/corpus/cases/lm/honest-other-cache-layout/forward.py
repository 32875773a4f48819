"""Stores positions before heads in its cache.

Expect: honest
"""

from dataclasses import replace

import stock


class Forward(stock.Forward):
    @staticmethod
    def state(spec, limits, dtype):
        shape = (limits.length, spec.kv_heads, spec.head_dim)
        asked = stock.Forward.state(spec, limits, dtype)
        return tuple(replace(tensor, shape=shape, layout="length, kv_heads, head_dim") for tensor in asked)

    def __init__(self, build):
        super().__init__(build)
        self.state_tensors = {name: tensor.transpose(1, 2) for name, tensor in build.state.items()}
