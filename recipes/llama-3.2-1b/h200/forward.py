"""Llama-3.2-1B in bf16 on one H200: batch-1 decode by a hand-written kernel, everything else in plain PyTorch.

Class of the rewrite: reassociated (fp32 sums in another order; the same bits on every run).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from engine import Engine
from pack import pack
from plain import Plain
from reforward.runtime.forward import Batch, Build, Limits, ModelSpec, Segment, StateTensor

LIBRARY = "persistent.so"


class Forward:
    """Follows `reforward.runtime.forward`; the cache is laid out as the stock forward's, so slots can change hands."""

    @staticmethod
    def state(spec: ModelSpec, limits: Limits, dtype: torch.dtype) -> tuple[StateTensor, ...]:
        """Keys (after rope) and values of every layer."""
        shape = (spec.kv_heads, limits.length, spec.head_dim)
        return tuple(
            StateTensor(name=f"{kind}.{layer}", shape=shape, dtype=dtype, layout="kv_heads, length, head_dim")
            for layer in range(spec.layers)
            for kind in ("keys", "values")
        )

    @staticmethod
    def pack(spec: ModelSpec, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """See pack.py."""
        return pack(spec, weights)

    def __init__(self, build: Build) -> None:
        self.plain = Plain(build)
        self.engine = Engine(build, build.artifacts / LIBRARY)
        self.chosen = torch.zeros(1, dtype=torch.int32, device=build.device)

    def step(self, batch: Batch, logits: Tensor) -> None:
        """A single token of a single sequence goes to the kernels."""
        alone = len(batch.segments) == 1 and batch.segments[0].length == 1 and logits.shape[0] == 1
        if alone and logits.is_contiguous():
            self.engine.decode(batch.tokens, batch.slot, batch.start, 1, self.chosen, logits)
        else:
            self.plain.step(batch, logits)

    def run(
        self, last: Tensor, slots: Tensor, positions: Tensor, steps: int, tokens: Tensor, logits: Tensor, counts: Tensor
    ) -> None:
        """Greedy decode; one sequence runs without the host."""
        counts.fill_(steps)
        if last.numel() == 1:
            self.engine.decode(last, slots, positions, steps, tokens, logits)
        else:
            self._run_plain(last, slots, positions, steps, tokens, logits)

    def _run_plain(
        self, last: Tensor, slots: Tensor, positions: Tensor, steps: int, tokens: Tensor, logits: Tensor
    ) -> None:
        held, starts = slots.tolist(), positions.tolist()
        ones, rows = torch.ones_like(slots), torch.arange(last.numel(), dtype=torch.int32, device=last.device)
        for i in range(steps):
            segments = tuple(
                Segment(slot=slot, start=start + i, length=1) for slot, start in zip(held, starts, strict=True)
            )
            batch = Batch(tokens=last, segments=segments, slot=slots, start=positions + i, length=ones, rows=rows)
            self.plain.step(batch, logits[i])
            last = logits[i].argmax(-1).to(torch.int32)
            tokens[i] = last
