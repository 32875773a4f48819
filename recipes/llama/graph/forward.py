"""Any Llama-family shape on a GPU: plain PyTorch whose decode step the runtime captures into a graph.

Class of the rewrite: reassociated (attention looks at all positions of a slot through a mask; the sums are those of other kernels).
Prefill and mixed batches go the way of the stock forward.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from reforward.models.llama import Forward as Stock
from reforward.models.llama import apply_rope, linear, rms_norm, rope_angles
from reforward.runtime.forward import Batch


def look(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """Attention of one query a head: q [B, K, G, D], keys and values [B, K, L, D], seen [B, 1, 1, L]; returns as q.

    Two matrix products instead of `scaled_dot_product_attention`, whose kernels for this shape take a second to load.
    """
    scores = torch.matmul(q, keys.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    return torch.matmul(scores.masked_fill(~seen, -torch.inf).softmax(-1).to(q.dtype), values)


class Forward(Stock):
    """Follows `reforward.runtime.forward`; state as the stock forward's."""

    captured = True

    def step(self, batch: Batch, logits: Tensor) -> None:
        """A step of one token a sequence reads the batch's tensors only."""
        if any(segment.length > 1 for segment in batch.segments):
            super().step(batch, logits)
            return
        spec, weights = self.spec, self.weights
        x = F.embedding(batch.tokens, weights["model.embed_tokens.weight"])
        cos, sin = rope_angles(batch.start, spec, x.dtype)
        for layer in range(spec.layers):
            x = self.layer(x, layer, batch, cos, sin)
        x = rms_norm(x[batch.rows], weights["model.norm.weight"], spec.rms_eps)
        logits.copy_(linear(x, weights["model.embed_tokens.weight" if spec.tied else "lm_head.weight"]))

    def attend(self, x: Tensor, layer: int, batch: Batch, cos: Tensor, sin: Tensor) -> Tensor:
        """As the stock's for prompts; for decode, every position of the slots behind a mask."""
        if any(segment.length > 1 for segment in batch.segments):
            return super().attend(x, layer, batch, cos, sin)
        spec, own = self.spec, f"model.layers.{layer}.self_attn"
        q, k, v = (self._project(x, f"{own}.{kind}_proj") for kind in "qkv")
        if spec.qk_norm:
            q = rms_norm(q, self.weights[f"{own}.q_norm.weight"], spec.rms_eps)
            k = rms_norm(k, self.weights[f"{own}.k_norm.weight"], spec.rms_eps)
        slots, starts = batch.slot.long(), batch.start.long()
        keys, values = self.state_tensors[f"keys.{layer}"], self.state_tensors[f"values.{layer}"]
        keys[slots, :, starts] = apply_rope(k, cos, sin)
        values[slots, :, starts] = v
        grouped = apply_rope(q, cos, sin).view(x.shape[0], spec.kv_heads, -1, spec.head_dim)
        mixed = look(grouped, keys[slots], values[slots], self._seen(starts, keys.shape[2]))
        return linear(mixed.reshape(x.shape[0], -1), self.weights[f"{own}.o_proj.weight"])

    def _project(self, x: Tensor, name: str) -> Tensor:
        made = linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))
        return made.view(x.shape[0], -1, self.spec.head_dim)

    def _seen(self, starts: Tensor, length: int) -> Tensor:
        """[B, 1, 1, length] bool."""
        places, window = torch.arange(length, device=starts.device), self.spec.sliding_window
        seen = places <= starts[:, None]
        if window is not None:
            seen &= places > starts[:, None] - window
        return seen[:, None, None]
