"""Lets the runtime capture its decode step into a graph: it reads the batch's tensors only.

Expect: honest
Needs: gpu
"""

import stock
import torch
from torch.nn import functional as F


class Forward(stock.Forward):
    captured = True

    def step(self, batch, logits):
        if any(segment.length > 1 for segment in batch.segments):
            super().step(batch, logits)
            return
        spec, weights = self.spec, self.weights
        x = F.embedding(batch.tokens, weights["model.embed_tokens.weight"])
        cos, sin = stock.rope_angles(batch.start, spec, x.dtype)
        for layer in range(spec.layers):
            x = self.layer(x, layer, batch, cos, sin)
        x = stock.rms_norm(x[batch.rows], weights["model.norm.weight"], spec.rms_eps)
        logits.copy_(F.linear(x, weights["model.embed_tokens.weight" if spec.tied else "lm_head.weight"]))

    def attend(self, x, layer, batch, cos, sin):
        if any(segment.length > 1 for segment in batch.segments):
            return super().attend(x, layer, batch, cos, sin)
        spec, own = self.spec, f"model.layers.{layer}.self_attn"
        made = [F.linear(x, self.weights[f"{own}.{kind}_proj.weight"]) for kind in "qkv"]
        q, k, v = (part.view(x.shape[0], -1, spec.head_dim) for part in made)
        slots, starts = batch.slot.long(), batch.start.long()
        keys, values = self.state_tensors[f"keys.{layer}"], self.state_tensors[f"values.{layer}"]
        keys[slots, :, starts], values[slots, :, starts] = stock.apply_rope(k, cos, sin), v
        grouped = stock.apply_rope(q, cos, sin).view(x.shape[0], spec.kv_heads, -1, spec.head_dim)
        seen = (torch.arange(keys.shape[2], device=x.device) <= starts[:, None])[:, None, None]
        scores = torch.matmul(grouped, keys[slots].transpose(-1, -2)) * spec.head_dim**-0.5
        mixed = torch.matmul(scores.masked_fill(~seen, -torch.inf).softmax(-1), values[slots])
        return F.linear(mixed.reshape(x.shape[0], -1), self.weights[f"{own}.o_proj.weight"])
