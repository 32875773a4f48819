"""The whole forward of Fracast-0 (PyPI `fracast` 0.1.0, Apache-2.0) as one module: encoder, then forecast head."""

import torch
from fracast._core.model import build_from_cfg
from torch import nn


class Forecaster(nn.Module):
    """Normalised context [B, 1, 2048] with its mask and coverage to quantiles [B, 48, 9]."""

    def __init__(self, cfg: dict) -> None:
        super().__init__()
        self.core, self.head = build_from_cfg(cfg)

    def forward(self, values: torch.Tensor, valid: torch.Tensor, coverage: torch.Tensor) -> torch.Tensor:
        hidden = self.core(values, valid, coverage)
        return self.head.forward_horizon(hidden, last_obs=values[:, 0, -1:], ctx=values[:, 0], ctx_mask=valid[:, 0])
