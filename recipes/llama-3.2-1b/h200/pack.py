"""Weight layouts of the decode kernels: rows that must meet in one thread block lie side by side."""

from collections.abc import Mapping

import torch
from torch import Tensor

from reforward.runtime.forward import ModelSpec


def rope_pairs(weight: Tensor, head_dim: int) -> Tensor:
    """Rows d and d + head_dim / 2 of each head, which rope turns into each other, become neighbours."""
    heads = weight.shape[0] // head_dim
    return weight.view(heads, 2, head_dim // 2, -1).transpose(1, 2).reshape(weight.shape)


def interleave(gate: Tensor, up: Tensor) -> Tensor:
    """[gate 0, up 0, gate 1, up 1, ...]."""
    return torch.stack((gate, up), dim=1).reshape(2 * gate.shape[0], gate.shape[1])


def pack(spec: ModelSpec, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`qkv.<layer>` [(heads + 2 kv_heads) * head_dim, hidden] and `gate_up.<layer>` [2 intermediate, hidden]."""
    packed: dict[str, Tensor] = {}
    for layer in range(spec.layers):
        own = f"model.layers.{layer}"
        qkv = torch.cat([weights[f"{own}.self_attn.{kind}_proj.weight"] for kind in "qkv"])
        packed[f"qkv.{layer}"] = rope_pairs(qkv, spec.head_dim)
        packed[f"gate_up.{layer}"] = interleave(
            weights[f"{own}.mlp.gate_proj.weight"], weights[f"{own}.mlp.up_proj.weight"]
        )
    return packed
