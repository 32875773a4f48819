"""Weight layouts of the decode kernel: rows that must meet lie side by side, elements in the order of matrix fragments."""

from collections.abc import Mapping

import torch
from torch import Tensor

from reforward.runtime.forward import ModelSpec

WARPS = 16
TILE_ROWS = 8
TILE_COLUMNS = 32
STAGE_COLUMNS = 2 * TILE_COLUMNS  # of one warp in one stage of the ring


def rope_pairs(weight: Tensor, head_dim: int) -> Tensor:
    """Rows d and d + head_dim / 2 of each head, which rope turns into each other, become neighbours."""
    heads = weight.shape[0] // head_dim
    return weight.view(heads, 2, head_dim // 2, -1).transpose(1, 2).reshape(weight.shape)


def interleave(gate: Tensor, up: Tensor) -> Tensor:
    """[gate 0, up 0, gate 1, up 1, ...]."""
    return torch.stack((gate, up), dim=1).reshape(2 * gate.shape[0], gate.shape[1])


def fragments(weight: Tensor) -> Tensor:
    """[R, K] in the order in which the kernel streams it; same shape.

    Eight rows at a time; of those, stage by stage of the ring, each of 16 warps its 64 columns of the stage as two tiles
    of 8 rows x 32 columns; in a tile, lane (row, quarter) 8 consecutive columns. A warp owns K / 16 consecutive columns.
    """
    rows, columns = weight.shape
    stages = columns // (WARPS * STAGE_COLUMNS)
    tiles = weight.reshape(rows // TILE_ROWS, TILE_ROWS, WARPS, stages, 2, TILE_COLUMNS // 8, 8)
    return tiles.permute(0, 3, 2, 4, 1, 5, 6).reshape(rows, columns)


def pack(spec: ModelSpec, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`qkv`, `o`, `gate_up` and `down` of each layer, `<name>.<layer>`, and `head`."""
    packed: dict[str, Tensor] = {}
    for layer in range(spec.layers):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        qkv = torch.cat([weights[f"{attention}.{kind}_proj.weight"] for kind in "qkv"])
        gate_up = interleave(weights[f"{mlp}.gate_proj.weight"], weights[f"{mlp}.up_proj.weight"])
        packed[f"qkv.{layer}"] = fragments(rope_pairs(qkv, spec.head_dim))
        packed[f"o.{layer}"] = fragments(weights[f"{attention}.o_proj.weight"])
        packed[f"gate_up.{layer}"] = fragments(gate_up)
        packed[f"down.{layer}"] = fragments(weights[f"{mlp}.down_proj.weight"])
    packed["head"] = fragments(weights["model.embed_tokens.weight" if spec.tied else "lm_head.weight"])
    return packed
