"""Fracast-0 as a subject: real weights from the wheel (`pip install --no-deps fracast==0.1.0`), contract bit-exact."""

import importlib.resources
import json

import forecaster
import torch
from fracast.inference import load_fracast
from torch import nn

WEIGHTS = importlib.resources.files("fracast") / "weights"
CONTEXT = 2048

rewrite = forecaster.Forecaster
sources = ("fracast._core",)


def config() -> dict:
    """The part of the wheel's configuration that the model is built from."""
    found = json.loads((WEIGHTS / "config.json").read_text())
    return {key: found[key] for key in ("model", "pyramid")}


def build(cls: type) -> nn.Module:
    """An instance without weights."""
    return cls(config())


def load() -> nn.Module:
    """The model with the wheel's weights."""
    model = build(rewrite)
    core, head = load_fracast(str(WEIGHTS), weights="w8")
    model.core.load_state_dict(core.state_dict())
    model.head.load_state_dict(head.state_dict())
    return model.eval()


def inputs(generator: torch.Generator, tier: str) -> tuple[torch.Tensor, ...]:
    """One seasonal series with trend, noise and gaps, scaled to [0, 1] as the package does; tiers do not differ."""
    time = torch.arange(CONTEXT, dtype=torch.float32)
    period, phase, slope, noise = torch.rand(4, generator=generator).tolist()
    season = torch.sin(2 * torch.pi * (time / (12 + 84 * period) + phase))
    series = season + slope * time / CONTEXT + 0.3 * noise * torch.randn(CONTEXT, generator=generator)
    valid = torch.rand(CONTEXT, generator=generator) > 0.02
    low, high = series[valid].min(), series[valid].max()
    values = torch.where(valid, (series - low) / (high - low), torch.zeros(()))
    return values[None, None, :], valid[None, None, :], valid[None, None, :].float()
