"""The compiled decode engine of one forward, through ctypes: greedy steps of one sequence, without the host."""

import ctypes
import math
from pathlib import Path

import torch
from torch import Tensor

from reforward.domain.errors import BadInput, CandidateFailed
from reforward.models.llama import inverse_frequencies
from reforward.runtime.forward import Build, ModelSpec
from schedule import schedule, table

SHAPE = {"hidden": 2048, "heads": 32, "kv_heads": 8, "head_dim": 64, "intermediate": 8192, "vocab": 128256}
MAX_LAYERS = 16
LAYER_FIELDS = ("qkv", "o", "gate_up", "down", "norm_in", "norm_post", "keys", "values")


class Layer(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in LAYER_FIELDS]


class Model(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("embed", "head", "norm", "rope", "scratch")),
        ("length", ctypes.c_int),
        ("eps", ctypes.c_float),
    ]


def check_shape(spec: ModelSpec, dtype: torch.dtype) -> None:
    """The kernels are written for one shape; raises `BadInput` for any other."""
    wrong = [f"{name} = {getattr(spec, name)}" for name, value in SHAPE.items() if getattr(spec, name) != value]
    if not 1 <= spec.layers <= MAX_LAYERS:
        wrong.append(f"layers = {spec.layers}")
    wrong += [name for name in ("qkv_bias", "qk_norm", "sliding_window") if getattr(spec, name)]
    if dtype != torch.bfloat16:
        wrong.append(f"dtype = {dtype}")
    if wrong:
        raise BadInput(f"these kernels run the shape of Llama-3.2-1B in bfloat16 only, not {', '.join(wrong)}")


def rope_table(spec: ModelSpec, length: int, device: torch.device) -> Tensor:
    """[length, head_dim / 2, 2] fp32: cos and sin, computed in double precision."""
    steps = inverse_frequencies(spec, device).double()
    angles = torch.arange(length, dtype=torch.float64, device=device)[:, None] * steps
    return torch.stack((angles.cos(), angles.sin()), dim=-1).float().contiguous()


class Engine:
    """Holds the library, its scratch memory and the pointers; `decode` only enqueues work on the current stream."""

    def __init__(self, build: Build, library: Path) -> None:
        check_shape(build.spec, build.dtype)
        if not library.is_file():
            raise CandidateFailed("load", f"the build stage left no {library.name}")
        self.library = ctypes.CDLL(str(library))
        self.library.engine_scratch_bytes.restype = ctypes.c_size_t
        size = math.ceil(self.library.engine_scratch_bytes() / 256) * 256
        self.scratch = torch.zeros(size, dtype=torch.uint8, device=build.device)
        self.rope = rope_table(build.spec, build.limits.length, build.device)
        self.kept = (build.weights, build.packed, build.state)
        layers = (Layer * build.spec.layers)(*(self._layer(build, i) for i in range(build.spec.layers)))
        self.handle = ctypes.c_void_p()
        blocks = torch.cuda.get_device_properties(build.device).multi_processor_count
        shares = table(schedule(build.spec, blocks))
        self.shares = torch.tensor(shares, dtype=torch.int32, device=build.device)
        torch.cuda.synchronize(build.device)
        self._call(
            "engine_create",
            ctypes.byref(self._model(build)),
            ctypes.byref(layers),
            build.spec.layers,
            ctypes.c_void_p(self.shares.data_ptr()),
            blocks,
            ctypes.byref(self.handle),
        )

    def decode(self, last: Tensor, slot: Tensor, position: Tensor, steps: int, tokens: Tensor, logits: Tensor) -> None:
        """`steps` greedy steps. All tensors on the device: `last`, `slot`, `position` int32 [1], `tokens` int32 [steps]
        and `logits` fp32 [steps, vocab], both contiguous."""
        for tensor in (last, slot, position, tokens):
            assert tensor.dtype == torch.int32
            assert tensor.is_contiguous()
        assert logits.dtype == torch.float32
        assert logits.is_contiguous()
        assert tokens.numel() >= steps
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (last, slot, position)]
        outputs = [ctypes.c_void_p(t.data_ptr()) for t in (tokens, logits)]
        stream = ctypes.c_void_p(torch.cuda.current_stream(last.device).cuda_stream)
        self._call("engine_decode", self.handle, *pointers, steps, *outputs, stream)

    def close(self) -> None:
        """Free graphs and streams."""
        self._call("engine_destroy", self.handle)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise CandidateFailed("run", f"{name} failed with CUDA error {code}")

    def _model(self, build: Build) -> Model:
        weights, head = build.weights, build.packed["head"]
        tensors = (weights["model.embed_tokens.weight"], head, weights["model.norm.weight"], self.rope, self.scratch)
        return Model(*(t.data_ptr() for t in tensors), build.limits.length, build.spec.rms_eps)

    def _layer(self, build: Build, layer: int) -> Layer:
        own = f"model.layers.{layer}"
        tensors = (
            build.packed[f"qkv.{layer}"],
            build.packed[f"o.{layer}"],
            build.packed[f"gate_up.{layer}"],
            build.packed[f"down.{layer}"],
            build.weights[f"{own}.input_layernorm.weight"],
            build.weights[f"{own}.post_attention_layernorm.weight"],
            build.state[f"keys.{layer}"],
            build.state[f"values.{layer}"],
        )
        assert all(t.is_contiguous() and t.data_ptr() % 16 == 0 for t in tensors)
        return Layer(*(t.data_ptr() for t in tensors))
