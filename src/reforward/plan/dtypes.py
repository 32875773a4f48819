"""Number formats of weights, activations and caches: bytes per element, and the arithmetic that runs them."""

from dataclasses import dataclass

from reforward.domain.errors import BadInput

BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4 / 128**2,
    "int8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "int4": 0.5 + 2 / 32,
}
"""Bytes per element, scales of its blocks included."""
ARITHMETIC = {
    "fp32": "bf16",
    "bf16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "int8": "int8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "int4": "bf16",
}
"""What multiplies a matrix of this format where the hardware can; 4-bit integers are widened to bf16 first."""


@dataclass(frozen=True, kw_only=True)
class Dtypes:
    """What is really quantised, by class of weights. Keys of `BYTES`."""

    attention: str = "bf16"
    mlp: str = "bf16"
    """Dense layers."""
    shared: str = "bf16"
    """Shared experts."""
    experts: str = "bf16"
    """Routed experts."""
    head: str = "bf16"
    kv: str = "bf16"
    """The attention cache."""

    def __post_init__(self) -> None:
        for name in (self.attention, self.mlp, self.shared, self.experts, self.head, self.kv):
            if name not in BYTES:
                raise BadInput(f"number format {name!r} is not known; one of {', '.join(BYTES)}")


def nbytes(dtype: str) -> float:
    """Bytes per element, scales included."""
    return BYTES[dtype]
