"""The whole forward of Fracast-0 (PyPI `fracast` 0.1.0, Apache-2.0) with the same bits in fewer, larger pieces.

The sixteen passes through the shared blocks are native code (`native.py`); what depends on weights or length alone is computed
at the first call; periods, which the package detects twice, are detected once where both must see the same series.
"""

import math
from functools import cached_property
from pathlib import Path

import torch
from fracast._core.model import build_from_cfg
from fracast._core.periodic.encoder import _fill_nan_row
from fracast._core.periodic.official_encoding import _recency_encoding
from fracast._core.periodic.official_periodogram import significant_periods
from fracast._core.periodic.seasonal_fill import folded_seasonal_fill
from native import Blocks
from torch import Tensor, nn


class Forecaster(nn.Module):
    """Normalised context [B, 1, 2048] with its mask and coverage to quantiles [B, 48, 9]."""

    artifacts: Path

    def __init__(self, cfg: dict) -> None:
        super().__init__()
        self.core, self.head = build_from_cfg(cfg)
        assert self.core.share_stages, cfg
        assert self.head.seasonal_fill_mode == "phase_mean", cfg
        assert self.head.output_mode == "direct", cfg

    def forward(self, values: Tensor, valid: Tensor, coverage: Tensor) -> Tensor:
        encoder, decoder = self.blocks
        context, mask = values[:, 0], valid[:, 0].bool()
        known = torch.where(mask, torch.nan_to_num(context, nan=0.0, posinf=0.0, neginf=0.0), self.zero)
        periods = self.periods(known, mask)
        hidden = encoder(self.enter(known, coverage[:, 0].to(known.dtype), periods))
        same = bool((torch.isfinite(context) | ~mask).all())
        future = self.enter_future(hidden, context, mask, periods if same else self.periods(context, mask))
        return self.forecast(hidden, decoder(future))

    def periods(self, series: Tensor, mask: Tensor) -> Tensor:
        """[B, K] periods of [B, L], zero for none."""
        filled = _fill_nan_row(series.float(), mask)
        options = self.head.period_kw
        return significant_periods(
            filled,
            min_period=options["min_period"],
            max_period=max(2, series.shape[1] // 2),
            top_k=options["top_k"],
            significance_alpha=options["alpha"],
        )[0]

    def enter(self, known: Tensor, coverage: Tensor, periods: Tensor) -> Tensor:
        """[B, L, 64], what the encoder's blocks begin with."""
        recency = self.recency.expand(len(known), -1, -1)
        x = self.core.in_proj(torch.cat((known.unsqueeze(-1), coverage.unsqueeze(-1), recency), dim=-1))
        return x + self.core.periodic.proj(self.phases(periods))

    def phases(self, periods: Tensor) -> Tensor:
        """[B, L, 2 K]: sine and cosine of the position in each period, zero where there is none."""
        found = (periods > 0).unsqueeze(1).float()
        angles = self.turns / periods.clamp(min=1).unsqueeze(1).float()
        return torch.stack((torch.sin(angles) * found, torch.cos(angles) * found), dim=-1).flatten(2)

    def enter_future(self, hidden: Tensor, context: Tensor, mask: Tensor, periods: Tensor) -> Tensor:
        """[B, 128 + 48, 64], what the blocks over the horizon begin with."""
        head, count = self.head, len(hidden)
        fill = folded_seasonal_fill(context, self.horizon.expand(count, -1), periods, head.phase_bins, mask)
        steps = head.future_conv.in_proj(torch.cat((fill.unsqueeze(-1), self.future.expand(count, -1, -1)), dim=-1))
        return torch.cat((hidden[:, -head.future_conv.seed :], steps), dim=1)

    def forecast(self, hidden: Tensor, ahead: Tensor) -> Tensor:
        """[B, 48, 9]."""
        head, count = self.head, len(hidden)
        summary = torch.cat((hidden.mean(dim=1), hidden[:, -1]), dim=-1).unsqueeze(1).expand(-1, head.horizon, -1)
        x = head.summary_proj(torch.cat((self.future.expand(count, -1, -1), summary), dim=-1))
        x = x + head.queries.unsqueeze(0)
        for ffn, norm in zip(head.decoder_ffns, head.decoder_norms, strict=True):
            x = norm(x + ffn(x))
        for block in head.fc_blocks:
            x = block(x)
        return head.out_proj(x + head.future_conv.out_proj(ahead[:, -head.horizon :]))

    @cached_property
    def blocks(self) -> tuple[Blocks, Blocks]:
        """The core's with its last norm, and those over the horizon. What is left to PyTorch is too small to share out."""
        core, ahead = self.core, self.head.future_conv
        pairs = [
            core.scale.to_gb(core.scale.scale_feat(d, dtype=torch.float32)).chunk(2, dim=-1) for d in core.dilations()
        ]
        film = torch.stack([1.0 + gamma for gamma, _ in pairs]), torch.stack([beta for _, beta in pairs])
        encoder = Blocks(self.artifacts, core.block, core.dilations(), film, core.norm)
        decoder = Blocks(self.artifacts, ahead.block, [ahead.dilation_base**i for i in range(ahead.n_layers)])
        torch.set_num_threads(1)
        return encoder, decoder

    @cached_property
    def zero(self) -> Tensor:
        """A number."""
        return torch.zeros(())

    @cached_property
    def turns(self) -> Tensor:
        """[1, L, 1]: each position times a full turn."""
        return 2.0 * math.pi * torch.arange(self.core.W).view(1, -1, 1).float()

    @cached_property
    def recency(self) -> Tensor:
        """[1, L, 5] of the context."""
        return _recency_encoding(torch.arange(self.core.W).unsqueeze(0), self.core.W)

    @cached_property
    def horizon(self) -> Tensor:
        """[1, H] positions of the forecast."""
        return torch.arange(self.core.W, self.core.W + self.head.horizon).unsqueeze(0)

    @cached_property
    def future(self) -> Tensor:
        """[1, H, 5] of the forecast."""
        return _recency_encoding(self.horizon, self.core.W)
