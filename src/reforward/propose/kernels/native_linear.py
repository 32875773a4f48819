"""Calls `linear.cpp` for products of few rows on the CPU; everything else stays with PyTorch."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from reforward.runtime.native import load_shared

MOST_ROWS = 8
CALLS: dict[torch.dtype, Callable[..., None]] = {}


def load(artifacts: Path) -> None:
    """Bind the library that the build stage made."""
    library = load_shared(artifacts / "linear.so")
    for dtype, call in ((torch.float32, library.linear_f32), (torch.bfloat16, library.linear_bf16)):
        call.argtypes = (ctypes.c_void_p,) * 4 + (ctypes.c_long,) * 3 + (ctypes.c_int,)
        CALLS[dtype] = call


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[N, in] times [out, in] transposed: [N, out]."""
    rows, call = x.numel() // x.shape[-1], CALLS.get(weight.dtype)
    if not (call and 0 < rows <= MOST_ROWS and weight.is_contiguous() and x.dtype == weight.dtype):
        return F.linear(x, weight, bias)
    x, shift = x.contiguous(), None if bias is None else bias.data_ptr()
    out = torch.empty((*x.shape[:-1], len(weight)), dtype=x.dtype)
    call(x.data_ptr(), weight.data_ptr(), shift, out.data_ptr(), rows, *weight.shape, torch.get_num_threads())
    return out
