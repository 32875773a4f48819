"""Packed weights: the kernel's fragment order is a permutation of the checkpoint's weights."""

from typing import Any

import torch
from torch import Tensor

from reforward.domain.spec import ModelSpec

SMALL = ModelSpec(
    family="llama",
    layers=2,
    hidden=1024,
    heads=16,
    kv_heads=2,
    head_dim=64,
    intermediate=2048,
    vocab=64,
    rms_eps=1e-5,
    rope_theta=10000.0,
    tied=True,
)


def kernel_index(offset: int, columns: int) -> tuple[int, int]:
    """Row and column of the element at `offset` of the stream, from what persistent.cu does with it."""
    stage_bytes, warps = 16384, 16
    tile_row, inside = divmod(offset, 8 * columns)
    stage, at = divmod(inside, stage_bytes // 2)
    warp, at = divmod(at, 512)  # 1 KB of a stage
    tile, at = divmod(at, 256)  # 512 bytes: 32 lanes of 16 bytes
    lane, element = divmod(at, 8)
    row, quarter = divmod(lane, 4)
    column = warp * (columns // warps) + (stage * 2 + tile) * 32 + quarter * 8 + element
    return tile_row * 8 + row, column


def weights_of(spec: ModelSpec) -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(3)
    kv = spec.kv_heads * spec.head_dim
    shapes = {"model.embed_tokens.weight": (spec.vocab, spec.hidden)}
    for layer in range(spec.layers):
        own = f"model.layers.{layer}"
        shapes[f"{own}.self_attn.q_proj.weight"] = (spec.heads * spec.head_dim, spec.hidden)
        shapes[f"{own}.self_attn.k_proj.weight"] = (kv, spec.hidden)
        shapes[f"{own}.self_attn.v_proj.weight"] = (kv, spec.hidden)
        shapes[f"{own}.self_attn.o_proj.weight"] = (spec.hidden, spec.heads * spec.head_dim)
        shapes[f"{own}.mlp.gate_proj.weight"] = (spec.intermediate, spec.hidden)
        shapes[f"{own}.mlp.up_proj.weight"] = (spec.intermediate, spec.hidden)
        shapes[f"{own}.mlp.down_proj.weight"] = (spec.hidden, spec.intermediate)
    return {name: torch.randn(shape, generator=made) for name, shape in shapes.items()}


def unpacked(packed: Tensor) -> Tensor:
    """The matrix that the kernel sees."""
    rows, columns = packed.shape
    places = torch.tensor([kernel_index(offset, columns) for offset in range(8 * columns)])
    flat = places[:, 0] * columns + places[:, 1]
    out = torch.empty(rows // 8, 8 * columns)
    out[:, flat] = packed.reshape(rows // 8, 8 * columns)
    return out.reshape(rows, columns)


def test_fragments_are_read_back_by_the_kernels_addresses(recipe: Any) -> None:
    for columns in (2048, 8192):
        weight = torch.arange(16 * columns, dtype=torch.float32).reshape(16, columns)
        assert torch.equal(unpacked(recipe.load("pack").fragments(weight)), weight)


def test_packed_projections_give_the_stock_projections(recipe: Any) -> None:
    weights = weights_of(SMALL)
    packed = recipe.load("pack").pack(SMALL, weights)
    x = torch.randn(SMALL.hidden)
    for layer in range(SMALL.layers):
        own = f"model.layers.{layer}"
        pairs = unpacked(packed[f"qkv.{layer}"]) @ x
        stock = torch.cat([weights[f"{own}.self_attn.{kind}_proj.weight"] for kind in "qkv"]) @ x
        heads = pairs.view(-1, SMALL.head_dim // 2, 2)
        assert torch.allclose(torch.cat((heads[..., 0], heads[..., 1]), dim=1).flatten(), stock, atol=1e-3)
        both = unpacked(packed[f"gate_up.{layer}"]) @ x
        assert torch.allclose(both[0::2], weights[f"{own}.mlp.gate_proj.weight"] @ x, atol=1e-3)
        assert torch.allclose(both[1::2], weights[f"{own}.mlp.up_proj.weight"] @ x, atol=1e-3)
        assert torch.equal(unpacked(packed[f"down.{layer}"]), weights[f"{own}.mlp.down_proj.weight"])
    assert torch.equal(unpacked(packed["head"]), weights["model.embed_tokens.weight"])


def test_every_weight_but_the_norms_is_packed_once(recipe: Any) -> None:
    weights = weights_of(SMALL)
    packed = recipe.load("pack").pack(SMALL, weights)
    assert sum(t.numel() for t in packed.values()) == sum(t.numel() for t in weights.values())
