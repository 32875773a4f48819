"""The module subject of the corpus; see `reforward/runtime/module.py`."""

import torch
from network import Network
from torch import Tensor, nn

WIDTH, EXPERTS, PLACES = 64, 4, 12

rewrite = Network


def load() -> nn.Module:
    """Random weights, the same each time; the last expert is rarely asked."""
    torch.manual_seed(5)
    model = Network()
    model.place.normal_()
    with torch.no_grad():
        model.gate.bias.copy_(torch.linspace(1.0, -1.0, EXPERTS))
    return model


def build(cls: type) -> nn.Module:
    """The class takes no arguments."""
    return cls()


def inputs(generator: torch.Generator, tier: str) -> tuple[Tensor, Tensor]:
    """Another number of sequences at each draw; the first place of a sequence is always known."""
    count = int(torch.randint(2, 10, (1,), generator=generator))
    x = torch.randn(count, PLACES, WIDTH, generator=generator)
    known = torch.rand(count, PLACES, generator=generator) < 0.8
    known[:, 0] = True
    return x, known
