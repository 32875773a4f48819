"""The forward contract of the `lm` host: what a candidate's `forward.py` must export as `Forward`.

This is the smallest contract that carries chunked prefill, mixed batches, batch slots, hand-over of slots between
two forwards, verification of drafts, teacher forcing, and a kernel that loops over tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from reforward.domain.spec import Limits, ModelSpec, RopeScaling, Segment

__all__ = [
    "Batch",
    "Build",
    "Captures",
    "Copies",
    "Forward",
    "Limits",
    "ModelSpec",
    "Packs",
    "RopeScaling",
    "Runs",
    "Segment",
    "StateTensor",
]


@dataclass(frozen=True, kw_only=True)
class Build:
    """All that a forward is made from. Fields may be added; none will be removed or change meaning."""

    spec: ModelSpec
    weights: Mapping[str, Tensor]
    """Read-only, by checkpoint name, shared with other processes: a store to one is a fault."""
    packed: Mapping[str, Tensor]
    """What `pack` returned, read-only and shared likewise; empty if the candidate packs nothing."""
    state: Mapping[str, Tensor]
    """What `state` asked for: `[slots, *shape]`, allocated and zeroed by the runtime, owned by it, written by you."""
    limits: Limits
    artifacts: Path
    """Read-only folder with what the candidate's `build.py` wrote; may be empty."""
    device: torch.device
    dtype: torch.dtype
    """Type of the weights and of activations between operators."""
    rank: int = 0
    world: int = 1
    group: object | None = None
    """Process group for tensor parallelism; None when `world` is 1."""


@dataclass(frozen=True, kw_only=True)
class StateTensor:
    """One per-slot tensor that a forward keeps between calls. The candidate owns the layout, the runtime the memory."""

    name: str
    shape: tuple[int, ...]
    """Without the leading slot axis."""
    dtype: torch.dtype
    layout: str
    """Two forwards whose lists of (name, shape, dtype, layout) are equal can take over each other's slots."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One ragged call. Prefill, a chunk of it, decode, mixed batches and teacher forcing are all this.

    N tokens in S segments, M rows wanted. `segments` and the tensors say the same; a forward that is captured into a
    device graph must read the tensors, since the host values are those of the capture.
    """

    tokens: Tensor
    """[N] int32, segments one after the other."""
    segments: tuple[Segment, ...]
    """Host view, S long; no slot appears twice."""
    slot: Tensor
    """[S] int32."""
    start: Tensor
    """[S] int32."""
    length: Tensor
    """[S] int32, sums to N."""
    rows: Tensor
    """[M] int32, ascending indices into `tokens` whose logits are wanted; M may be 0."""


class Forward(Protocol):
    """What `forward.py` exports under the name `Forward`. Called by one thread, under `torch.inference_mode()`.

    Memory: weights and packed tensors are shared and read-only; state and logits belong to the runtime; everything
    else is the candidate's own, charged as private memory and bounded by `limits.workspace_bytes`. Inputs and outputs
    are valid during the call only, except state. Exceptions are failures: there is no fallback.
    """

    @staticmethod
    def state(spec: ModelSpec, limits: Limits, dtype: torch.dtype) -> tuple[StateTensor, ...]:
        """The per-slot tensors this forward keeps (for attention: keys and values)."""
        ...

    def __init__(self, build: Build) -> None:
        """Make the forward. May derive tables and views from weights; may not read anything outside `build`."""
        ...

    def step(self, batch: Batch, logits: Tensor) -> None:
        """Advance every segment and write `logits[M, vocab]` fp32: row i belongs to token `batch.rows[i]`.

        All N tokens are stored in their slots, at `start .. start+length-1`, before the call returns.
        """
        ...


class Packs(Protocol):
    """Optional: exported by a `Forward` class that wants other layouts of the weights."""

    @staticmethod
    def pack(spec: ModelSpec, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """New tensors made from the weights alone.

        Runs once, in a worker of its own; the result is sealed, kept by content hash and shared by all workers of the
        candidate. Its bytes are charged against the memory ceiling, its seconds are reported beside the swap.
        """
        ...


class Runs(Protocol):
    """Optional: exported by a `Forward` class that can decode greedily without the host."""

    def run(
        self, last: Tensor, slots: Tensor, positions: Tensor, steps: int, tokens: Tensor, logits: Tensor, counts: Tensor
    ) -> None:
        """Up to `steps` greedy steps for B sequences.

        `last`, `slots`, `positions` are [B] int32: the last token, its slot, and the position it will be stored at.
        Writes `tokens[steps, B]` int32, `logits[steps, B, vocab]` fp32 and `counts[B]` int32, how many tokens each
        sequence produced (at least 1). A token is the lowest index of the maximum of its fp32 row.
        """
        ...


class Captures(Protocol):
    """Optional: exported by a `Forward` class whose decode `step` can be captured into a device graph by the runtime.

    Called with one token of each sequence, all of them wanted, such a `step` enqueues the same work on the current stream
    whatever the values are, and takes tokens, slots and positions from the batch's tensors. `run` of the class goes first.
    """

    captured: bool
    """True."""


class Copies(Protocol):
    """Optional: exported by a `Forward` class whose slots can be duplicated (shared prefixes, n > 1)."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Make `target` hold the first `length` positions of `source`."""
        ...
