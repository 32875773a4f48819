"""Calls `step.cpp`: a ragged batch of few tokens through the whole decoder in native code."""

import ctypes

import torch
from torch import Tensor

from reforward.runtime.forward import Batch, Build
from reforward.runtime.native import load_shared

Pointer = ctypes.c_void_p
MOST_TOKENS = {torch.float32: 64, torch.bfloat16: 24}
"""Beyond, PyTorch multiplies matrices faster."""
TENSORS = ("attention_norm", "q", "k", "v", "o", "mlp_norm", "gate", "up", "down", "keys", "values")
NAMES = {
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "inner", "vocab", "length")
MULTIPLE = 64
"""Every width that a vector walks along is a multiple of this."""


class Layer(ctypes.Structure):  # the same order as in model.h, here and below
    _fields_ = [(name, Pointer) for name in TENSORS]


class Model(ctypes.Structure):
    _fields_ = [
        ("layer", Pointer),
        *((name, Pointer) for name in ("embedding", "final_norm", "head", "cosine", "sine")),
        *((name, ctypes.c_long) for name in SIZES),
        ("eps", ctypes.c_float),
        ("threads", ctypes.c_int),
    ]


class Tokens(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("token", "slot", "position", "row")),
        ("count", ctypes.c_long),
        ("wanted", ctypes.c_long),
        ("ragged", ctypes.c_long),
        ("logits", Pointer),
    ]


class Decoder:
    """The decoder of a build. Keeps its tensors alive; reads weights and writes state where they lie.

    `cos` and `sin` are [length, 1, head_dim]. Raises `ValueError` for a model of another shape than the kernel's.
    """

    def __init__(self, build: Build, cos: Tensor, sin: Tensor) -> None:
        spec = build.spec
        check(build)
        library = load_shared(build.artifacts / "step.so")
        self.native = library.step_f32 if build.dtype == torch.float32 else library.step_bf16
        self.native.argtypes = (Pointer, Pointer)
        self.wake = library.step_wake
        self.wake.argtypes = (ctypes.c_int,)
        self.pick = library.step_argmax
        self.pick.argtypes = (Pointer, ctypes.c_long, ctypes.c_long, Pointer)
        self.most = MOST_TOKENS[build.dtype]
        tables = [angles.flatten(1)[:, : spec.head_dim // 2].float().contiguous() for angles in (cos, sin)]
        embedding = build.weights["model.embed_tokens.weight"]
        head = embedding if spec.tied else build.weights["lm_head.weight"]
        whole = [embedding, build.weights["model.norm.weight"], head, *tables]
        layers = [layer_tensors(build, layer) for layer in range(spec.layers)]
        self.layers = (Layer * spec.layers)(*(Layer(*map(address, tensors)) for tensors in layers))
        self.kept = [*whole, *(tensor for tensors in layers for tensor in tensors)]
        self.model = Model(
            ctypes.addressof(self.layers),
            *map(address, whole),
            *(spec.layers, spec.hidden, spec.heads, spec.kv_heads, spec.head_dim, spec.intermediate, spec.vocab),
            build.limits.length,
            spec.rms_eps,
            torch.get_num_threads(),
        )

    def takes(self, batch: Batch) -> bool:
        """Whether the native path is the faster one."""
        return len(batch.tokens) <= self.most

    def step(self, batch: Batch, logits: Tensor) -> None:
        """One call of the forward contract."""
        self.wake(self.model.threads)
        slots, positions, ragged = batch.slot, batch.start, len(batch.tokens) > len(batch.segments)
        if ragged:
            slots = torch.repeat_interleave(batch.slot, batch.length)
            positions = torch.cat(
                [torch.arange(s.start, s.start + s.length, dtype=torch.int32) for s in batch.segments]
            )
        self.call(batch.tokens, slots, positions, batch.rows, logits, ragged)

    def run(self, last: Tensor, slots: Tensor, positions: Tensor, steps: int, tokens: Tensor, logits: Tensor) -> None:
        """Greedy steps; see `reforward.runtime.forward.Runs`."""
        rows = torch.arange(len(last), dtype=torch.int32)
        for step in range(steps):
            self.call(last, slots, positions + step, rows, logits[step], False)
            last = tokens[step]
            self.pick(address(logits[step]), len(last), self.model.vocab, address(last))

    def call(self, token: Tensor, slot: Tensor, position: Tensor, rows: Tensor, logits: Tensor, ragged: bool) -> None:
        """One step; integers are int32, all tensors contiguous, `logits` [rows, vocab] fp32."""
        call = Tokens(*map(address, (token, slot, position, rows)), len(token), len(rows), ragged, address(logits))
        self.native(ctypes.byref(self.model), ctypes.byref(call))


def check(build: Build) -> None:
    """Refuse what the kernel leaves out, by name."""
    spec = build.spec
    odd = {
        "sliding_window": spec.sliding_window is not None,
        "qkv_bias": spec.qkv_bias,
        "qk_norm": spec.qk_norm,
        "dtype": build.dtype not in MOST_TOKENS,
        "device": build.device.type != "cpu",
        "widths": any(n % MULTIPLE for n in (spec.hidden, spec.head_dim, spec.intermediate)),
    }
    found = [name for name, bad in odd.items() if bad]
    if found:
        raise ValueError(f"this recipe is for plain Llama decoders on a CPU; it does not do: {', '.join(found)}")


def layer_tensors(build: Build, layer: int) -> list[Tensor]:
    """Weights and state of one layer, in the order of `TENSORS`."""
    weights = [build.weights[f"model.layers.{layer}.{name}.weight"] for name in NAMES.values()]
    return [*weights, build.state[f"keys.{layer}"], build.state[f"values.{layer}"]]


def address(tensor: Tensor) -> int:
    """Where the tensor's numbers lie."""
    assert tensor.is_contiguous(), tensor.shape
    return tensor.data_ptr()
