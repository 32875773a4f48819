"""The shape of a decoder and of what one worker may be asked for: `ModelSpec`, `Limits`, `Segment`."""

from dataclasses import dataclass
from typing import Literal

from reforward.domain.errors import BadInput

Family = Literal["llama", "qwen2", "qwen3", "mistral"]


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Rotary frequency scaling: `llama3` (Llama 3.1 model card) or `linear`, which divides each frequency by `factor`."""

    kind: Literal["llama3", "linear"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The architecture of a Llama-family decoder. Weight names are those of the Hugging Face checkpoint."""

    family: Family
    layers: int
    """Layers to run: the first ones, fewer than the checkpoint has at the fast tier."""
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    rms_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    """q, k and v projections have a bias (Qwen2)."""
    qk_norm: bool = False
    """q and k are RMS-normalised per head before rope (Qwen3)."""
    tied: bool = False
    """The head shares the embedding matrix; then there is no `lm_head.weight`."""
    sliding_window: int | None = None
    """Positions that attention may look back, itself included (Mistral); None for all."""
    max_positions: int = 2048


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one worker will ever be asked for. Sizes of all buffers follow from it."""

    slots: int
    """Sequences held at once; slot ids are 0 .. slots-1."""
    length: int
    """Positions per slot."""
    tokens: int
    """Tokens in one `step` call, over all its segments."""
    rows: int = 64
    """Logits rows that the outbox of one worker holds at once."""
    steps: int = 1
    """Most steps that one `run` call may be asked for."""
    workspace_bytes: int = 1 << 30
    """What a candidate may allocate for itself beyond its state and packed tensors."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A run of consecutive tokens of one sequence."""

    slot: int
    start: int
    """Position of the first token. 0 resets the slot; otherwise the tokens that the slot holds."""
    length: int

    def __post_init__(self) -> None:
        if self.slot < 0 or self.start < 0 or self.length < 1:
            raise BadInput(f"a segment needs slot >= 0, start >= 0 and length >= 1, got {self!r}")
