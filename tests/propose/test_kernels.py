"""The native product against PyTorch: odd shapes, both types, 1 to 9 rows, one and several threads."""

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import reforward.propose
from reforward.runtime.native import compile_shared, load_shared

KERNELS = Path(reforward.propose.__file__).parent / "kernels"
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")

PORTABLE = ("-march=x86-64",)
"""Sixteen-byte vectors: what a machine without AVX2 compiles."""


@pytest.fixture(scope="module", params=[(), PORTABLE], ids=["native", "portable"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return load_shared(compile_shared([KERNELS / "linear.cpp"], tmp_path_factory.mktemp("k"), "linear", request.param))


def product(library: ctypes.CDLL, x: Tensor, w: Tensor, bias: Tensor | None, threads: int) -> Tensor:
    call: Callable[..., None] = library.linear_f32 if x.dtype == torch.float32 else library.linear_bf16
    call.argtypes = (ctypes.c_void_p,) * 4 + (ctypes.c_long,) * 3 + (ctypes.c_int,)  # type: ignore[attr-defined]
    out = torch.full((len(x), len(w)), float("nan"), dtype=x.dtype)
    shift = None if bias is None else bias.data_ptr()
    call(x.data_ptr(), w.data_ptr(), shift, out.data_ptr(), len(x), *w.shape, threads)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (16, 16), (33, 31), (257, 65), (130, 576), (40, 1537)])
@pytest.mark.parametrize("rows", range(1, 10))
def test_products_agree(library: ctypes.CDLL, dtype: torch.dtype, shape: tuple[int, int], rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, shape[1], generator=generator).to(dtype)
    w = torch.randn(shape, generator=generator).to(dtype)
    bias = torch.randn(shape[0], generator=generator).to(dtype) if rows % 2 else None
    exact = torch.nn.functional.linear(x.double(), w.double(), None if bias is None else bias.double())
    limit = (1e-6 if dtype == torch.float32 else 4e-3) * (x.double().abs() @ w.double().abs().T + 1)
    for threads in (1, 2, 3):
        assert bool(((product(library, x, w, bias, threads).double() - exact).abs() <= limit).all())


def test_the_result_does_not_depend_on_the_number_of_threads(library: ctypes.CDLL) -> None:
    x, w = torch.randn(3, 300), torch.randn(777, 300)
    one = product(library, x, w, None, 1)
    assert all(torch.equal(one, product(library, x, w, None, threads)) for threads in (2, 4) for _ in range(20))


def test_bf16_rounds_to_nearest_even(library: ctypes.CDLL) -> None:
    x = torch.randn(8, 1, generator=torch.Generator().manual_seed(0)).bfloat16()
    w = torch.randn(500, 1, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(product(library, x, w, None, 2), (x.float() * w.float().T).bfloat16())
