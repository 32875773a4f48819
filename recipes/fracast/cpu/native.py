"""Calls `blocks.cpp`: the package's shared block over a series, for several dilations, with the bits of PyTorch."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from fracast._core.self_similar_block import SelfSimilarBlock
from torch import Tensor, nn

from reforward.runtime.native import load_shared

TENSORS = (
    *("filter", "filter_bias", "mix", "mix_bias", "up", "up_bias", "down", "down_bias"),
    *("norm1", "norm2", "last", "scale", "shift", "dilation"),
)
WIDTH, INNER, TAPS = 64, 96, 3
EXPONENTIAL = "Sleef_expf16_u10"


class Weights(ctypes.Structure):  # the same order as in blocks.cpp
    _fields_ = [
        *((name, ctypes.c_void_p) for name in TENSORS),
        ("blocks", ctypes.c_long),
        ("epsilon", ctypes.c_float),
        ("exponential", ctypes.c_void_p),
    ]


class Blocks:
    """One block with its weights in the kernel's layout. Raises `RuntimeError` where PyTorch's bits are others.

    `film` is the scale and the shift before each dilation, each [blocks, 64]; `last` a norm after all of them.
    """

    def __init__(
        self,
        artifacts: Path,
        block: SelfSimilarBlock,
        dilations: Sequence[int],
        film: tuple[Tensor, Tensor] | None = None,
        last: nn.RMSNorm | None = None,
    ) -> None:
        assert block.ffn.up.weight.shape == (2 * INNER, WIDTH), block.ffn.up.weight.shape
        assert block.dw_weight.shape == (WIDTH, 1, TAPS), block.dw_weight.shape
        self.native = load_shared(artifacts / "blocks.so").blocks_run
        self.threads = torch.get_num_threads()
        self.native.argtypes = (*(ctypes.c_void_p,) * 3, ctypes.c_long, ctypes.c_int)
        scale, shift = film or (None, None)
        self.kept = [
            *(block.dw_weight[:, 0].t().contiguous(), block.dw_bias),
            *turned(block.pw),
            *turned(block.ffn.up),
            *turned(block.ffn.down),
            *(block.norm1.weight, block.norm2.weight, last.weight if last else None, scale, shift),
            torch.tensor(dilations, dtype=torch.int64),
        ]
        places = [None if tensor is None else tensor.data_ptr() for tensor in self.kept]
        self.weights = Weights(*places, len(dilations), torch.finfo(torch.float32).eps, exponential())
        self._compare(block, dilations, film, last)

    def __call__(self, x: Tensor) -> Tensor:
        """[B, L, 64] to the same shape."""
        x = x.contiguous()
        out = torch.empty_like(x)
        for series, made in zip(x, out, strict=True):
            self.native(ctypes.byref(self.weights), series.data_ptr(), made.data_ptr(), len(series), self.threads)
        return out

    def _compare(
        self, block: SelfSimilarBlock, dilations: Sequence[int], film: object, last: nn.RMSNorm | None
    ) -> None:
        """The package's own block on noise, once: what this file says about rounding is true of one PyTorch on one processor."""
        x = torch.randn(1, 131, WIDTH, generator=torch.Generator().manual_seed(0))
        expected = x
        for i, dilation in enumerate(dilations):
            entered = expected if film is None else expected * film[0][i] + film[1][i]
            expected = block(entered, dilation)
        expected = last(expected) if last else expected
        if not torch.equal(self(x), expected):
            raise RuntimeError(
                "PyTorch rounds in another order on this machine; this recipe is for AVX-512 and torch 2.13"
            )


def turned(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Weight as [in, out], and bias."""
    return linear.weight.t().contiguous(), linear.bias


def exponential() -> int:
    """Address of the vector exponential that PyTorch's own kernels call."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    found: Callable[..., None] = getattr(library, EXPONENTIAL)
    address = ctypes.cast(found, ctypes.c_void_p).value
    assert address is not None
    return address
