"""Calls `step.cpp`: a ragged batch through the whole decoder in native code, on the CPU."""

import ctypes
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from reforward.runtime.forward import Batch, Build
from reforward.runtime.native import load_shared

Pointer = ctypes.c_void_p
MOST_TOKENS = {torch.float32: 64, torch.bfloat16: 24}  # beyond, PyTorch multiplies matrices faster
TENSORS = (
    *("attention_norm", "q", "k", "v", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm", "o"),
    *("mlp_norm", "gate", "up", "down", "keys", "values"),
)
SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "inner", "vocab", "length", "window")


class Layer(ctypes.Structure):  # the same order as in step.cpp
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
        assert build.dtype in MOST_TOKENS, build.dtype
        assert build.device.type == "cpu", build.device
        library = load_shared(build.artifacts / "step.so")
        self.native = library.step_f32 if build.dtype == torch.float32 else library.step_bf16
        self.native.argtypes = (Pointer, Pointer)
        self.most = MOST_TOKENS[build.dtype]
        self.pick = library.step_argmax
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
        """Whether the native path is the faster one."""
        return len(batch.tokens) <= self.most

    def step(self, batch: Batch, logits: Tensor) -> None:
        """One call of the forward contract."""
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


def address(tensor: Tensor | None) -> int | None:
    """Where the tensor's numbers lie."""
    if tensor is None:
        return None
    assert tensor.is_contiguous(), tensor.shape
    return tensor.data_ptr()
