"""The host of causal language models: binds a `Forward` to weights and state, and runs ragged steps."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reforward.domain.errors import CandidateFailed
from reforward.runtime.forward import Batch, Build, Limits, ModelSpec, Segment, StateTensor
from reforward.runtime.graphs import Graphs


class LmHost:
    """One candidate, ready to step. Owns state; writes logits only where the caller says."""

    def __init__(
        self,
        forward: type,
        *,
        spec: ModelSpec,
        weights: Mapping[str, Tensor],
        packed: Mapping[str, Tensor],
        limits: Limits,
        artifacts: Path,
        dtype: torch.dtype,
        oracle: bool = False,
    ) -> None:
        self.spec, self.limits = spec, limits
        self.device = next(iter(weights.values())).device
        if oracle:
            dtype, weights = torch.float64, _wide(weights, self.device)
        self.state = allocate(_asked(forward, spec, limits, dtype), limits.slots, self.device)
        self.state_bytes = sum(tensor.nbytes for tensor in self.state.values())
        build = Build(
            spec=spec,
            weights=weights,
            packed=packed,
            state=self.state,
            limits=limits,
            artifacts=artifacts,
            device=self.device,
            dtype=dtype,
        )
        with torch.inference_mode():
            self.forward: Any = forward(build)
            self.graphs = self._graphs()

    @torch.inference_mode()
    def step(
        self, tokens: Sequence[int], segments: Sequence[Segment], rows: Sequence[int], logits: Tensor
    ) -> list[int]:
        """One call; `logits` is [M, vocab] fp32. Returns the lowest index of each row's maximum."""
        width = len(segments)
        if self.graphs and self.graphs.fits(width) and len(tokens) == len(rows) == width:
            slots, starts = [s.slot for s in segments], [s.start for s in segments]
            return self.graphs.run(tokens, slots, starts, 1, logits)[0]
        own = self._landing(logits)
        self.forward.step(make_batch(tokens, segments, rows, self.limits, self.device), own)
        return self._deliver(own, logits)

    @torch.inference_mode()
    def run(
        self, last: Sequence[int], slots: Sequence[int], positions: Sequence[int], steps: int, logits: Tensor
    ) -> list[list[int]]:
        """`steps` greedy steps of B sequences; `logits` is [steps * B, vocab] fp32, step by step."""
        width, vocab = len(last), logits.shape[1]
        assert steps <= self.limits.steps
        assert all(slot < self.limits.slots for slot in slots)
        assert all(position + steps <= self.limits.length for position in positions)
        if not hasattr(self.forward, "run"):
            return self._repeat(last, slots, positions, steps, logits)
        tokens = torch.zeros(steps, width, dtype=torch.int32, device=self.device)
        counts = torch.zeros(width, dtype=torch.int32, device=self.device)
        starts = [torch.tensor(values, dtype=torch.int32, device=self.device) for values in (last, slots, positions)]
        own = self._landing(logits)
        self.forward.run(*starts, steps, tokens, own.view(steps, width, vocab), counts)
        self._deliver(own, logits)
        if counts.tolist() != [steps] * width:
            raise CandidateFailed("run", f"run() produced {counts.tolist()} tokens where {steps} each were asked for")
        return tokens.tolist()

    def _graphs(self) -> Graphs | None:
        if self.device.type != "cuda" or not getattr(self.forward, "captured", False):
            return None
        return Graphs(self.forward, self.state, self.limits, self.spec.vocab, self.device)

    def _landing(self, logits: Tensor) -> Tensor:
        """Where the forward writes: the caller's rows, or rows of its device, filled with NaN so that a gap shows."""
        if logits.device == self.device:
            return logits
        return torch.full(logits.shape, math.nan, device=self.device)

    def _deliver(self, own: Tensor, logits: Tensor) -> list[int]:
        """Copy rows to the caller if they are not there, wait for all work of the device, and choose the tokens."""
        if own is logits:
            return greedy(own)
        logits.copy_(own, non_blocking=True)
        tokens = own.argmax(dim=-1)
        torch.cuda.synchronize(self.device)
        return tokens.tolist()

    def _repeat(
        self, last: Sequence[int], slots: Sequence[int], positions: Sequence[int], steps: int, logits: Tensor
    ) -> list[list[int]]:
        made: list[list[int]] = []
        width = len(last)
        if self.graphs and self.graphs.fits(width):
            return self.graphs.run(last, slots, positions, steps, logits)
        for step in range(steps):
            segments = [
                Segment(slot=slot, start=position + step, length=1)
                for slot, position in zip(slots, positions, strict=True)
            ]
            own = logits[step * width : (step + 1) * width]
            made.append(self.step(made[-1] if made else last, segments, range(width), own))
        return made


def _wide(weights: Mapping[str, Tensor], device: torch.device) -> Mapping[str, Tensor]:
    """The weights in float64: all at once on a CPU, where converting takes long."""
    return Widening(weights) if device.type == "cuda" else {name: tensor.double() for name, tensor in weights.items()}


class Widening(Mapping[str, Tensor]):
    """Weights in float64, each converted when it is asked for: a device may have room for one, not for all."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights

    def __getitem__(self, name: str) -> Tensor:
        return self._weights[name].double()

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def truncate(spec: ModelSpec, weights: Mapping[str, Tensor], depth: int) -> tuple[ModelSpec, dict[str, Tensor]]:
    """The model's first `depth` layers, with its own embedding, final norm and head."""
    kept = {name: tensor for name, tensor in weights.items() if layer_of(name) < depth}
    return replace(spec, layers=depth), kept


def layer_of(name: str) -> int:
    """Layer index in a checkpoint name; -1 for what belongs to no layer."""
    parts = name.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] else -1


def allocate(wanted: Sequence[StateTensor], slots: int, device: torch.device) -> dict[str, Tensor]:
    """Zeroed `[slots, *shape]` tensors by name."""
    return {item.name: torch.zeros(slots, *item.shape, dtype=item.dtype, device=device) for item in wanted}


def pack(forward: Any, spec: ModelSpec, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the candidate's `pack` makes, contiguous; empty if it has none. Aliases of weights are refused."""
    if not hasattr(forward, "pack"):
        return {}
    with torch.inference_mode():
        made = forward.pack(spec, weights)
    if not isinstance(made, Mapping):
        raise CandidateFailed("pack", f"pack() returned a {type(made).__name__}, not a mapping of tensors by name")
    shared = {tensor.untyped_storage().data_ptr(): tensor.device for tensor in weights.values()}
    return {str(name): _packed(str(name), tensor, shared) for name, tensor in made.items()}


def _packed(name: str, tensor: Any, shared: Mapping[int, torch.device]) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise CandidateFailed("pack", f"pack() returned a {type(tensor).__name__} under {name!r}, not a tensor")
    if tensor.layout != torch.strided or tensor.device not in shared.values():
        raise CandidateFailed(
            "pack", f"{name!r} is {tensor.layout} on {tensor.device}, not plain and beside the weights"
        )
    if tensor.untyped_storage().data_ptr() in shared:
        raise CandidateFailed("pack", f"pack() returned a view of a weight under {name!r}; read it from weights")
    return tensor.detach().contiguous()


def make_batch(
    tokens: Sequence[int], segments: Sequence[Segment], rows: Sequence[int], limits: Limits, device: torch.device
) -> Batch:
    """Tensors and host view of one ragged call, checked against the limits."""
    assert len(tokens) == sum(segment.length for segment in segments) <= limits.tokens
    assert all(s.slot < limits.slots and s.start + s.length <= limits.length for s in segments)
    columns = ([s.slot for s in segments], [s.start for s in segments], [s.length for s in segments], tokens, rows)
    together = torch.tensor([value for column in columns for value in column], dtype=torch.int32, device=device)
    slot, start, length, stored, wanted = together.split([len(column) for column in columns])
    return Batch(tokens=stored, segments=tuple(segments), slot=slot, start=start, length=length, rows=wanted)


def greedy(logits: Tensor) -> list[int]:
    """Lowest index of each row's maximum. `argmax` on a CPU returns the first; kept explicit by a test."""
    return logits.argmax(dim=-1).tolist()


def _asked(forward: Any, spec: ModelSpec, limits: Limits, dtype: torch.dtype) -> tuple[StateTensor, ...]:
    asked = tuple(forward.state(spec, limits, dtype))
    names = [item.name for item in asked]
    if len(set(names)) != len(names):
        raise CandidateFailed("load", f"state() names a tensor twice: {sorted(names)}")
    return asked
