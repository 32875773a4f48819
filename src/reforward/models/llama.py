"""The stock forward of the Llama family (Llama 2 and 3, Mistral, Qwen2, Qwen3, SmolLM2): plain PyTorch, the slow readable twin.

Every rewrite is compared with this file, and starts from it. It follows `reforward.runtime.forward`. State: per layer, keys after
rope and values, `[slots, kv_heads, length, head_dim]`. Shapes: N tokens of a call, T of one segment, P positions held
after it, H heads, K kv heads, D head size, V vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from reforward.runtime.forward import Batch, Build, Limits, ModelSpec, Segment, StateTensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[N, in] times [out, in] transposed: [N, out]."""
    return F.linear(x, weight, bias)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis, at least in fp32 (Zhang and Sennrich, 2019)."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (wide * scale).to(x.dtype)


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """The gated activation of SwiGLU (Shazeer, 2020)."""
    return F.silu(gate) * up


def inverse_frequencies(spec: ModelSpec, device: torch.device) -> Tensor:
    """[D / 2] fp32 angular steps per position, with the checkpoint's scaling (Llama 3.1 model card for `llama3`)."""
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.float32, device=device) / spec.head_dim
    steps = 1.0 / spec.rope_theta**exponents
    scaling = spec.rope_scaling
    if scaling is None:
        return steps
    if scaling.kind == "linear":
        return steps / scaling.factor
    wavelengths = 2 * math.pi / steps
    turns = scaling.original_max_positions / wavelengths
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = blend.clamp(0, 1)
    return (1 - blend) * steps / scaling.factor + blend * steps


def rope_angles(positions: Tensor, spec: ModelSpec, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin, each [N, 1, D], for int positions [N]."""
    angles = positions[:, None].float() * inverse_frequencies(spec, positions.device)[None, :]
    angles = torch.cat((angles, angles), dim=-1)[:, None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [N, heads, D]; the halves of D are the two coordinates (Su et al., 2021; layout of the checkpoints)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def repeat_kv(x: Tensor, groups: int) -> Tensor:
    """[K, P, D] to [K * groups, P, D]: each kv head once for every query head that shares it."""
    return x.repeat_interleave(groups, dim=0)


def causal_mask(segment: Segment, window: int | None, device: torch.device) -> Tensor:
    """[T, P] bool: which held positions each new token may look at."""
    rows = torch.arange(segment.start, segment.start + segment.length, device=device)[:, None]
    columns = torch.arange(segment.start + segment.length, device=device)[None, :]
    seen = columns <= rows
    return seen if window is None else seen & (columns > rows - window)


def attention(q: Tensor, keys: Tensor, values: Tensor, segment: Segment, spec: ModelSpec) -> Tensor:
    """One segment: q [T, H, D], keys and values [K, P, D]; returns [T, H * D]."""
    groups = spec.heads // spec.kv_heads
    keys, values = repeat_kv(keys, groups), repeat_kv(values, groups)
    mask = causal_mask(segment, spec.sliding_window, q.device)
    mixed = F.scaled_dot_product_attention(q.transpose(0, 1), keys, values, attn_mask=mask)
    return mixed.transpose(0, 1).reshape(segment.length, spec.heads * spec.head_dim)


class Forward:
    """The stock forward: one call advances every segment of a ragged batch."""

    @staticmethod
    def state(spec: ModelSpec, limits: Limits, dtype: torch.dtype) -> tuple[StateTensor, ...]:
        """Keys and values of every layer."""
        shape = (spec.kv_heads, limits.length, spec.head_dim)
        return tuple(
            StateTensor(name=f"{kind}.{layer}", shape=shape, dtype=dtype, layout="kv_heads, length, head_dim")
            for layer in range(spec.layers)
            for kind in ("keys", "values")
        )

    def __init__(self, build: Build) -> None:
        self.spec = build.spec
        self.weights = build.weights
        self.state_tensors = build.state

    def step(self, batch: Batch, logits: Tensor) -> None:
        """Embed, run the layers, and write the wanted rows of the head."""
        spec, weights = self.spec, self.weights
        x = F.embedding(batch.tokens, weights["model.embed_tokens.weight"])
        positions = torch.cat([torch.arange(s.start, s.start + s.length, device=x.device) for s in batch.segments])
        cos, sin = rope_angles(positions, spec, x.dtype)
        for layer in range(spec.layers):
            x = self.layer(x, layer, batch, cos, sin)
        x = rms_norm(x, weights["model.norm.weight"], spec.rms_eps)
        head = weights["model.embed_tokens.weight" if spec.tied else "lm_head.weight"]
        logits.copy_(linear(x, head)[batch.rows])

    def layer(self, x: Tensor, layer: int, batch: Batch, cos: Tensor, sin: Tensor) -> Tensor:
        """One decoder layer on [N, hidden]."""
        weights, eps, prefix = self.weights, self.spec.rms_eps, f"model.layers.{layer}"
        normed = rms_norm(x, weights[f"{prefix}.input_layernorm.weight"], eps)
        x = x + self.attend(normed, layer, batch, cos, sin)
        normed = rms_norm(x, weights[f"{prefix}.post_attention_layernorm.weight"], eps)
        gate = linear(normed, weights[f"{prefix}.mlp.gate_proj.weight"])
        up = linear(normed, weights[f"{prefix}.mlp.up_proj.weight"])
        return x + linear(silu_mul(gate, up), weights[f"{prefix}.mlp.down_proj.weight"])

    def attend(self, x: Tensor, layer: int, batch: Batch, cos: Tensor, sin: Tensor) -> Tensor:
        """Project, rotate, store keys and values in their slots, and attend segment by segment."""
        spec, weights, prefix = self.spec, self.weights, f"model.layers.{layer}.self_attn"
        q = linear(x, weights[f"{prefix}.q_proj.weight"], weights.get(f"{prefix}.q_proj.bias"))
        k = linear(x, weights[f"{prefix}.k_proj.weight"], weights.get(f"{prefix}.k_proj.bias"))
        v = linear(x, weights[f"{prefix}.v_proj.weight"], weights.get(f"{prefix}.v_proj.bias"))
        q = q.view(-1, spec.heads, spec.head_dim)
        k = k.view(-1, spec.kv_heads, spec.head_dim)
        v = v.view(-1, spec.kv_heads, spec.head_dim)
        if spec.qk_norm:
            q = rms_norm(q, weights[f"{prefix}.q_norm.weight"], spec.rms_eps)
            k = rms_norm(k, weights[f"{prefix}.k_norm.weight"], spec.rms_eps)
        q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        keys, values = self.state_tensors[f"keys.{layer}"], self.state_tensors[f"values.{layer}"]
        mixed: list[Tensor] = []
        first = 0
        for segment in batch.segments:
            own, end = slice(first, first + segment.length), segment.start + segment.length
            keys[segment.slot, :, segment.start : end] = k[own].transpose(0, 1)
            values[segment.slot, :, segment.start : end] = v[own].transpose(0, 1)
            mixed.append(attention(q[own], keys[segment.slot, :, :end], values[segment.slot, :, :end], segment, spec))
            first += segment.length
        return linear(torch.cat(mixed), weights[f"{prefix}.o_proj.weight"])
