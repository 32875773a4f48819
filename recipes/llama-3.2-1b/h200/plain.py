"""Plain PyTorch: prefill, chunks, batches above 1. The decode kernels share its cache layout with the stock forward."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from reforward.models.llama import apply_rope, rms_norm, rope_angles, silu_mul
from reforward.runtime.forward import Batch, Build, Segment


SMALL = 1 << 20  # tokens asked times positions held


class Plain:
    """One call advances every segment of a ragged batch; projections are shared, attention runs by segment."""

    def __init__(self, build: Build) -> None:
        self.spec, self.weights, self.cache = build.spec, build.weights, build.state

    def step(self, batch: Batch, logits: Tensor) -> None:
        """As `Forward.step`."""
        spec, weights = self.spec, self.weights
        x = F.embedding(batch.tokens, weights["model.embed_tokens.weight"])
        positions = torch.cat([torch.arange(s.start, s.start + s.length, device=x.device) for s in batch.segments])
        turns = rope_angles(positions, spec, x.dtype)
        for layer in range(spec.layers):
            x = self._layer(x, layer, batch.segments, turns)
        x = rms_norm(x[batch.rows], weights["model.norm.weight"], spec.rms_eps)
        head = weights["model.embed_tokens.weight" if spec.tied else "lm_head.weight"]
        logits.copy_(F.linear(x, head))

    def _layer(self, x: Tensor, layer: int, segments: tuple[Segment, ...], turns: tuple[Tensor, Tensor]) -> Tensor:
        weights, eps, own = self.weights, self.spec.rms_eps, f"model.layers.{layer}"
        x = x + self._attend(rms_norm(x, weights[f"{own}.input_layernorm.weight"], eps), layer, segments, turns)
        normed = rms_norm(x, weights[f"{own}.post_attention_layernorm.weight"], eps)
        gate = F.linear(normed, weights[f"{own}.mlp.gate_proj.weight"])
        up = F.linear(normed, weights[f"{own}.mlp.up_proj.weight"])
        return x + F.linear(silu_mul(gate, up), weights[f"{own}.mlp.down_proj.weight"])

    def _attend(self, x: Tensor, layer: int, segments: tuple[Segment, ...], turns: tuple[Tensor, Tensor]) -> Tensor:
        own = f"model.layers.{layer}.self_attn"
        q, k, v = (
            F.linear(x, self.weights[f"{own}.{kind}_proj.weight"]).view(x.shape[0], -1, self.spec.head_dim)
            for kind in "qkv"
        )
        q, k = apply_rope(q, *turns), apply_rope(k, *turns)
        keys, values = self.cache[f"keys.{layer}"], self.cache[f"values.{layer}"]
        mixed: list[Tensor] = []
        first = 0
        for s in segments:
            new, held = slice(first, first + s.length), s.start + s.length
            keys[s.slot, :, s.start : held] = k[new].transpose(0, 1)
            values[s.slot, :, s.start : held] = v[new].transpose(0, 1)
            mixed.append(mix(q[new], keys[s.slot, :, :held], values[s.slot, :, :held]))
            first += s.length
        return F.linear(torch.cat(mixed), self.weights[f"{own}.o_proj.weight"])


def mix(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of the last T of P held positions: q [T, H, D], keys and values [K, P, D]; returns [T, H * D].

    Small ones as two products, whose kernels are loaded anyway: those of `scaled_dot_product_attention` take half a second.
    """
    asked, held = q.shape[0], keys.shape[1]
    if asked * held <= SMALL:
        return mix_small(q, keys, values)
    alone, square = asked == 1, asked == held
    mask = None if alone or square else causal_lower_right(asked, held)
    mixed = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], keys[None], values[None], attn_mask=mask, is_causal=square and not alone, enable_gqa=True
    )
    return mixed[0].transpose(0, 1).reshape(asked, -1)


def mix_small(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The same; holds all scores, [K, H / K * T, P] fp32, at once."""
    asked, heads, size = q.shape
    groups, held = keys.shape[:2]
    grouped = q.view(asked, groups, -1, size).permute(1, 2, 0, 3).reshape(groups, -1, size)
    scores = torch.bmm(grouped, keys.transpose(1, 2)).float().mul_(size**-0.5).view(groups, -1, asked, held)
    places = torch.arange(held, device=q.device)
    scores = scores.masked_fill(places > places[held - asked :, None], -torch.inf)
    mixed = torch.bmm(scores.softmax(-1).to(q.dtype).view(groups, -1, held), values)
    return mixed.view(groups, -1, asked, size).permute(2, 0, 1, 3).reshape(asked, -1)
