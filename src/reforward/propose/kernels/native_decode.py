"""Calls `decode.cpp`: a step of single tokens through the whole decoder in native code, on the CPU."""

import ctypes
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from reforward.runtime.forward import Batch, Build
from reforward.runtime.native import load_shared

Pointer = ctypes.c_void_p
TENSORS = (
    *("attention_norm", "q", "k", "v", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm", "o"),
    *("mlp_norm", "gate", "up", "down", "keys", "values"),
)
SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "inner", "vocab", "length", "window")


class Layer(ctypes.Structure):  # the same order as in decode.cpp
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
        ("logits", Pointer),
    ]


class Decoder:
    """The decoder of a build. Keeps its tensors alive; reads weights and writes state where they lie."""

    def __init__(
        self,
        build: Build,
        *,
        layers: Sequence[Mapping[str, Tensor | None]],
        embedding: Tensor,
        final_norm: Tensor,
        head: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> None:
        spec = build.spec
        self.fits = build.dtype in (torch.float32, torch.bfloat16) and build.device.type == "cpu"
        library = load_shared(build.artifacts / "decode.so")
        self.decode = library.decode_f32 if build.dtype == torch.float32 else library.decode_bf16
        self.pick, self.most = library.decode_argmax, library.decode_max_rows()
        self.decode.argtypes = (Pointer, Pointer)
        self.pick.argtypes = (Pointer, ctypes.c_long, ctypes.c_long, Pointer)
        self.tables = [angles.flatten(1)[:, : spec.head_dim // 2].float().contiguous() for angles in (cos, sin)]
        self.layers = (Layer * spec.layers)()
        self.kept = [*self.tables, embedding, final_norm, head, *(t for layer in layers for t in layer.values())]
        for native, tensors in zip(self.layers, layers, strict=True):
            for name, tensor in tensors.items():
                setattr(native, name, address(tensor))
        sizes = (spec.layers, spec.hidden, spec.heads, spec.kv_heads, spec.head_dim, spec.intermediate, spec.vocab)
        self.model = Model(
            ctypes.addressof(self.layers),
            *(address(tensor) for tensor in (embedding, final_norm, head, *self.tables)),
            *sizes,
            build.limits.length,
            spec.sliding_window or 0,
            spec.rms_eps,
            torch.get_num_threads(),
        )

    def takes(self, batch: Batch) -> bool:
        """Whether this is a step of single tokens, few enough to share one pass over the weights."""
        return self.fits and len(batch.segments) == len(batch.tokens) <= self.most

    def step(self, batch: Batch, logits: Tensor) -> None:
        """One token of every segment."""
        self.call(batch.tokens, batch.slot, batch.start, batch.rows, logits)

    def run(self, last: Tensor, slots: Tensor, positions: Tensor, steps: int, tokens: Tensor, logits: Tensor) -> None:
        """Greedy steps; see `reforward.runtime.forward.Runs`."""
        for first in range(0, len(last), self.most):
            part = slice(first, first + self.most)
            token, slot, position = last[part].contiguous(), slots[part].contiguous(), positions[part].clone()
            rows = torch.arange(len(token), dtype=torch.int32)
            for step in range(steps):
                self.call(token, slot, position, rows, logits[step, part])
                token = torch.empty_like(token)
                self.pick(address(logits[step, part]), len(token), self.model.vocab, address(token))
                tokens[step, part] = token
                position += 1

    def call(self, token: Tensor, slot: Tensor, position: Tensor, rows: Tensor, logits: Tensor) -> None:
        """One step; all tensors int32 and contiguous, `logits` [rows, vocab] fp32."""
        call = Tokens(*map(address, (token, slot, position, rows)), len(token), len(rows), address(logits))
        self.decode(ctypes.byref(self.model), ctypes.byref(call))


def address(tensor: Tensor | None) -> int | None:
    """Where the tensor's numbers lie."""
    if tensor is None:
        return None
    assert tensor.is_contiguous()
    return tensor.data_ptr()
