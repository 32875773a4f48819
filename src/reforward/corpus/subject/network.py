"""A small mixture of experts on sequences of vectors: gated, residual, masked, with one whole-number output."""

import torch
from torch import Tensor, nn

WIDTH, EXPERTS, PLACES = 64, 4, 12


class Network(nn.Module):
    """`x` [B, T, WIDTH] and `known` [B, T] bool, with B from 2 to 9: hidden [B, T, WIDTH], score [B, T], best [B]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        self.head = nn.Linear(WIDTH, 1)
        self.register_buffer("place", torch.zeros(PLACES, WIDTH))

    def forward(self, x: Tensor, known: Tensor) -> dict[str, Tensor]:
        hidden = x + self.mixed(self.norm(x + self.place))
        score = self.head(hidden).squeeze(-1).masked_fill(~known, float("-inf"))
        return {"hidden": hidden, "score": score, "best": score.argmax(dim=-1)}

    def mixed(self, x: Tensor) -> Tensor:
        """Every expert's answer, weighted by the gate."""
        share = torch.softmax(self.gate(x), dim=-1)
        return sum(share[..., i : i + 1] * self.expert(i, x) for i in range(EXPERTS))

    def expert(self, index: int, x: Tensor) -> Tensor:
        """One expert."""
        return torch.nn.functional.gelu(self.experts[index](x))
