"""Decode steps as device graphs: captured once for each number of sequences when a worker loads, replayed for every step.

In one graph: the candidate's `step`, the choice of the tokens, their way back to the input, and the move of the positions. So
the host is asked for nothing between the steps of a `run`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from reforward.runtime.forward import Batch, Limits, Segment

WIDEST = 8
"""Batches of more sequences are not captured."""
WARM_STEPS = 1
"""Steps before the capture, in which libraries allocate what they need."""


class Graph:
    """One decode step of `width` sequences."""

    def __init__(self, forward: Any, width: int, vocab: int, device: torch.device) -> None:
        self.inputs = torch.zeros(3, width, dtype=torch.int32, device=device)
        self.inputs[1] = torch.arange(width, device=device)
        self.logits = torch.empty(width, vocab, device=device)
        tokens, slot, start = self.inputs
        self.batch = Batch(
            tokens=tokens,
            segments=tuple(Segment(slot=slot, start=0, length=1) for slot in range(width)),
            slot=slot,
            start=start,
            length=torch.ones(width, dtype=torch.int32, device=device),
            rows=torch.arange(width, dtype=torch.int32, device=device),
        )
        self.forward = forward
        self.graph = self._capture(device)

    def _capture(self, device: torch.device) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_STEPS):
                self._step()
                self.batch.start.zero_()
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            graph.capture_begin()
            self._step()
            graph.capture_end()
        return graph

    def _step(self) -> None:
        self.forward.step(self.batch, self.logits)
        self.batch.tokens.copy_(self.logits.argmax(dim=-1))
        self.batch.start.add_(1)


class Graphs:
    """The graphs of one worker, and the state that their capture touched, zeroed again."""

    def __init__(
        self, forward: Any, state: Mapping[str, Tensor], limits: Limits, vocab: int, device: torch.device
    ) -> None:
        self.device = device
        self.by_width = {
            width: Graph(forward, width, vocab, device) for width in range(1, min(WIDEST, limits.slots) + 1)
        }
        for tensor in state.values():
            tensor.zero_()

    def fits(self, width: int) -> bool:
        """Whether a step of so many sequences was captured."""
        return width in self.by_width

    def run(
        self, last: Sequence[int], slots: Sequence[int], positions: Sequence[int], steps: int, logits: Tensor
    ) -> list[list[int]]:
        """As `LmHost.run`; `logits` [steps * B, vocab] may lie in pinned host memory."""
        width = len(last)
        graph = self.by_width[width]
        made = torch.empty(steps, width, dtype=torch.int32, device=self.device)
        graph.inputs.copy_(torch.tensor([list(last), list(slots), list(positions)], dtype=torch.int32))
        for step in range(steps):
            graph.graph.replay()
            logits[step * width : (step + 1) * width].copy_(graph.logits, non_blocking=True)
            made[step].copy_(graph.batch.tokens)
        torch.cuda.synchronize(self.device)
        return made.tolist()
