"""Output bytes as numpy arrays, and outputs as matrices of rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reforward.domain.measurement import Output, Tensor

Real = NDArray[np.float64]
Floats = NDArray[np.floating]
FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The same rows by three forwards, `[n, width]`, float32 or wider. lm: one per token; module: one per call."""

    group: str
    """Rows of one group are comparable with one another: all logits, or one output of a module."""
    candidate: Floats
    stock: Floats
    oracle: Floats | None
    logits: bool
    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    """lm: where in its sequence each row lies; else empty."""
    dtype: str


def is_float(dtype: str) -> bool:
    """Whether rounding has a meaning for this type."""
    return dtype in FLOATS or dtype == "bfloat16"


def epsilon(dtype: str) -> float:
    """Distance from 1 to the next number of this type."""
    return 2.0**-7 if dtype == "bfloat16" else float(np.finfo(FLOATS[dtype]).eps)


def values(tensor: Tensor) -> Floats:
    """A float tensor, exactly: a view if it is float32 or wider, else widened to float32."""
    if tensor.dtype == "bfloat16":
        wide = np.frombuffer(tensor.data, np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(tensor.shape)
    kind = np.float64 if tensor.dtype == "float64" else np.float32
    return np.frombuffer(tensor.data, FLOATS[tensor.dtype]).astype(kind, copy=False).reshape(tensor.shape)


def rows(output: Output) -> Rows:
    """One output as a matrix; its tensors must have equal shapes and a float type."""
    logits = bool(output.tokens)
    shape = output.stock.shape if logits else (1, -1)
    oracle = None if output.oracle is None else values(output.oracle).reshape(shape)
    return Rows(
        group="logits" if logits else output.name.rpartition(", ")[2],
        candidate=values(output.candidate).reshape(shape),
        stock=values(output.stock).reshape(shape),
        oracle=oracle,
        logits=logits,
        tokens=output.tokens,
        positions=output.positions,
        dtype=output.stock.dtype,
    )
