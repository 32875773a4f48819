"""The shape of a pre-norm decoder with rotary, grouped attention and a gated MLP, with holes for its weights."""

from collections.abc import Mapping

import libcst as cst

from reforward.propose.edit import function, method
from reforward.propose.match import code_of
from reforward.propose.shape import function_like

LINEAR = """
def linear(x, weight, bias=None):
    return F.linear(x, weight, bias)
"""
RMS_NORM = """
def rms_norm(x, weight, eps):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (wide * scale).to(x.dtype)
"""
SILU_MUL = """
def silu_mul(gate, up):
    return F.silu(gate) * up
"""
ROPE_ANGLES = """
def rope_angles(positions, spec, dtype):
    angles = positions[:, None].float() * inverse_frequencies(spec, positions.device)[None, :]
    angles = torch.cat((angles, angles), dim=-1)[:, None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)
"""
APPLY_ROPE = """
def apply_rope(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
"""
REPEAT_KV = """
def repeat_kv(x, groups):
    return x.repeat_interleave(groups, dim=0)
"""
CAUSAL_MASK = """
def causal_mask(segment, window, device):
    rows = torch.arange(segment.start, segment.start + segment.length, device=device)[:, None]
    columns = torch.arange(segment.start + segment.length, device=device)[None, :]
    seen = columns <= rows
    return seen if window is None else seen & (columns > rows - window)
"""
ATTENTION = """
def attention(q, keys, values, segment, spec):
    groups = spec.heads // spec.kv_heads
    keys, values = repeat_kv(keys, groups), repeat_kv(values, groups)
    mask = causal_mask(segment, spec.sliding_window, q.device)
    mixed = F.scaled_dot_product_attention(q.transpose(0, 1), keys, values, attn_mask=mask)
    return mixed.transpose(0, 1).reshape(segment.length, spec.heads * spec.head_dim)
"""
STATE = """
def state(spec, limits, dtype):
    shape = (spec.kv_heads, limits.length, spec.head_dim)
    return tuple(
        StateTensor(name=f"{kind}.{layer}", shape=shape, dtype=dtype, layout="kv_heads, length, head_dim")
        for layer in range(spec.layers)
        for kind in ("keys", "values")
    )
"""
STEP = """
def step(self, batch, logits):
    spec, weights = self.spec, self.weights
    x = F.embedding(batch.tokens, ANY_embedding)
    positions = torch.cat([torch.arange(s.start, s.start + s.length, device=x.device) for s in batch.segments])
    cos, sin = rope_angles(positions, spec, x.dtype)
    for layer in range(spec.layers):
        x = self.layer(x, layer, batch, cos, sin)
    x = rms_norm(x, ANY_final_norm, spec.rms_eps)
    head = ANY_head
    logits.copy_(linear(x, head)[batch.rows])
"""
LAYER = """
def layer(self, x, layer, batch, cos, sin):
    weights, eps, prefix = self.weights, self.spec.rms_eps, ANY_prefix
    normed = rms_norm(x, ANY_attention_norm, eps)
    x = x + self.attend(normed, layer, batch, cos, sin)
    normed = rms_norm(x, ANY_mlp_norm, eps)
    gate = linear(normed, ANY_gate)
    up = linear(normed, ANY_up)
    return x + linear(silu_mul(gate, up), ANY_down)
"""
ATTEND = """
def attend(self, x, layer, batch, cos, sin):
    spec, weights, prefix = self.spec, self.weights, ANY_prefix
    q = linear(x, ANY_q, ANY_q_bias)
    k = linear(x, ANY_k, ANY_k_bias)
    v = linear(x, ANY_v, ANY_v_bias)
    q = q.view(-1, spec.heads, spec.head_dim)
    k = k.view(-1, spec.kv_heads, spec.head_dim)
    v = v.view(-1, spec.kv_heads, spec.head_dim)
    if spec.qk_norm:
        q = rms_norm(q, ANY_q_norm, spec.rms_eps)
        k = rms_norm(k, ANY_k_norm, spec.rms_eps)
    q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
    keys, values = ANY_keys, ANY_values
    mixed: list[Tensor] = []
    first = 0
    for segment in batch.segments:
        own, end = slice(first, first + segment.length), segment.start + segment.length
        keys[segment.slot, :, segment.start : end] = k[own].transpose(0, 1)
        values[segment.slot, :, segment.start : end] = v[own].transpose(0, 1)
        mixed.append(attention(q[own], keys[segment.slot, :, :end], values[segment.slot, :, :end], segment, spec))
        first += segment.length
    return linear(torch.cat(mixed), ANY_o)
"""

HELPERS = {
    "linear": LINEAR,
    "rms_norm": RMS_NORM,
    "silu_mul": SILU_MUL,
    "rope_angles": ROPE_ANGLES,
    "apply_rope": APPLY_ROPE,
    "repeat_kv": REPEAT_KV,
    "causal_mask": CAUSAL_MASK,
    "attention": ATTENTION,
}
METHODS = {"state": STATE, "step": STEP, "layer": LAYER, "attend": ATTEND}


def decoder_weights(module: cst.Module, owner: str) -> Mapping[str, str] | None:
    """Where each tensor of the decoder comes from, in terms of `self` and `layer`; None if it is another decoder."""
    if any(function_like(function(module, name), shape) is None for name, shape in HELPERS.items()):
        return None
    found: dict[str, str] = {}
    for name, shape in METHODS.items():
        parts = function_like(method(module, owner, name), shape)
        if parts is None:
            return None
        found |= {hole.removeprefix("ANY_"): code_of(node) for hole, node in parts.items()}
    return found
