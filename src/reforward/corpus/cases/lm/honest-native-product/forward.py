"""Compiles a product in C++ in its build and calls it through ctypes for the gated part of single tokens.

Expect: honest
Needs: compiler; cpu
"""

import ctypes

import stock
import torch

product = stock.silu_mul


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        native = ctypes.CDLL(str(build.artifacts / "gate.so"))

        def silu_mul(gate, up):
            gate, up = gate.contiguous(), up.contiguous()
            made = torch.empty_like(gate)
            places = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (gate, up, made)]
            native.gate(*places, ctypes.c_long(gate.numel()))
            return made

        stock.silu_mul = silu_mul
