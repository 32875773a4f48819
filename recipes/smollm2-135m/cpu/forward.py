"""SmolLM2-135M on a CPU: few tokens go through native code (`decoder.py`, `step.cpp`), longer prompts through PyTorch.

State: per layer, keys after rope and values, `[slots, kv_heads, length, head_dim]`, as in the stock forward. Shapes: N tokens of
a call, T of one segment, P positions held after it, H heads, K kv heads, D head size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from decoder import Decoder
from torch import Tensor

from reforward.runtime.forward import Batch, Build, Limits, ModelSpec, Segment, StateTensor


def rope_tables(spec: ModelSpec, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin, each [length, 1, D] (Su et al., 2021)."""
    assert spec.rope_scaling is None, spec.rope_scaling
    steps = 1.0 / spec.rope_theta ** (torch.arange(0, spec.head_dim, 2, dtype=torch.float32) / spec.head_dim)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * steps[None, :]
    angles = torch.cat((angles, angles), dim=-1)[:, None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [N, heads, D]; the halves of D are the two coordinates."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def attention(q: Tensor, keys: Tensor, values: Tensor, segment: Segment) -> Tensor:
    """One segment: q [T, H, D], keys and values [K, P, D]; returns [T, H * D]."""
    end = segment.start + segment.length
    mask = torch.arange(end)[None, :] <= torch.arange(segment.start, end)[:, None] if segment.length > 1 else None
    mixed = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], keys[None], values[None], attn_mask=mask, enable_gqa=True
    )
    return mixed[0].transpose(0, 1).flatten(1)


class Forward:
    """One call advances every segment of a ragged batch."""

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
        self.spec, self.weights, self.held = build.spec, build.weights, build.state
        self.cos, self.sin = rope_tables(build.spec, build.limits.length, build.dtype)
        self.decoder = Decoder(build, self.cos, self.sin)

    def step(self, batch: Batch, logits: Tensor) -> None:
        """Embed, run the layers, and write the wanted rows of the head."""
        if self.decoder.takes(batch):
            self.decoder.step(batch, logits)
            return
        spec, weights = self.spec, self.weights
        x = F.embedding(batch.tokens, weights["model.embed_tokens.weight"])
        positions = torch.cat([torch.arange(s.start, s.start + s.length) for s in batch.segments])
        cos, sin = self.cos[positions], self.sin[positions]
        for layer in range(spec.layers):
            x = self.layer(x, layer, batch, cos, sin)
        head = weights["model.embed_tokens.weight" if spec.tied else "lm_head.weight"]
        logits.copy_(F.linear(self.norm(x[batch.rows], "model.norm"), head))

    def run(
        self, last: Tensor, slots: Tensor, positions: Tensor, steps: int, tokens: Tensor, logits: Tensor, counts: Tensor
    ) -> None:
        """Greedy steps without the host."""
        self.decoder.run(last, slots, positions, steps, tokens, logits)
        counts.fill_(steps)

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Root-mean-square norm over the last axis (Zhang and Sennrich, 2019)."""
        return F.rms_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.spec.rms_eps)

    def layer(self, x: Tensor, layer: int, batch: Batch, cos: Tensor, sin: Tensor) -> Tensor:
        """One decoder layer on [N, hidden]."""
        weights, prefix = self.weights, f"model.layers.{layer}"
        x = x + self.attend(self.norm(x, f"{prefix}.input_layernorm"), layer, batch, cos, sin)
        normed = self.norm(x, f"{prefix}.post_attention_layernorm")
        gate = F.silu(F.linear(normed, weights[f"{prefix}.mlp.gate_proj.weight"]), inplace=True)
        gate *= F.linear(normed, weights[f"{prefix}.mlp.up_proj.weight"])
        return x.add_(F.linear(gate, weights[f"{prefix}.mlp.down_proj.weight"]))

    def attend(self, x: Tensor, layer: int, batch: Batch, cos: Tensor, sin: Tensor) -> Tensor:
        """Project, rotate, store keys and values in their slots, and attend segment by segment."""
        spec, prefix = self.spec, f"model.layers.{layer}.self_attn"
        q, k, v = (
            F.linear(x, self.weights[f"{prefix}.{name}_proj.weight"]).view(len(x), -1, spec.head_dim) for name in "qkv"
        )
        q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        keys, values = self.held[f"keys.{layer}"], self.held[f"values.{layer}"]
        mixed: list[Tensor] = []
        first = 0
        for s in batch.segments:
            own, end = slice(first, first + s.length), s.start + s.length
            keys[s.slot, :, s.start : end] = k[own].transpose(0, 1)
            values[s.slot, :, s.start : end] = v[own].transpose(0, 1)
            mixed.append(attention(q[own], keys[s.slot, :, :end], values[s.slot, :, :end], s))
            first += s.length
        return F.linear(torch.cat(mixed), self.weights[f"{prefix}.o_proj.weight"])
