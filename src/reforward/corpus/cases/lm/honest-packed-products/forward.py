"""Packs the three projections of attention, and gate and up, into one matrix each when it is prepared.

Expect: honest
"""

import stock
import torch
import torch.nn.functional as F


class Forward(stock.Forward):
    @staticmethod
    def pack(spec, weights):
        made = {}
        for layer in range(spec.layers):
            prefix = f"model.layers.{layer}.mlp"
            made[prefix] = torch.cat([weights[f"{prefix}.gate_proj.weight"], weights[f"{prefix}.up_proj.weight"]])
        return made

    def __init__(self, build):
        super().__init__(build)
        self.packed = build.packed

    def layer(self, x, layer, batch, cos, sin):
        weights, eps, prefix = self.weights, self.spec.rms_eps, f"model.layers.{layer}"
        x = x + self.attend(stock.rms_norm(x, weights[f"{prefix}.input_layernorm.weight"], eps), layer, batch, cos, sin)
        normed = stock.rms_norm(x, weights[f"{prefix}.post_attention_layernorm.weight"], eps)
        gate, up = F.linear(normed, self.packed[f"{prefix}.mlp"]).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, weights[f"{prefix}.mlp.down_proj.weight"])
