"""Step times of a layout and how far off they may be: the one place where the search meets the cost model."""

import json
from pathlib import Path

from reforward.domain.errors import BadInput
from reforward.plan.affine import Affine
from reforward.plan.calibrate import Scaled
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
    """Prices, each term times its factor if a calibration is given."""
    if calibration is None:
        return price
    factors = read_factors(calibration)

    def corrected(model: Model, gpu: Gpu, layout: Layout, engine: Engine) -> Priced:
        found = price(model, gpu, layout, engine)
        steps = Scaled(base=found.steps, factors=factors)
        return Priced(
            steps=steps,
            prefill_spread=found.prefill_spread,
            decode_spread=found.decode_spread,
            about=f"{found.about}, corrected by {calibration.name}",
        )

    return corrected


def read_factors(path: Path) -> dict[str, float]:
    """The factors that `plan check` or `plan probe` has written."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["factors"]
        factors = {str(name): float(value) for name, value in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path} is no calibration; plan check or plan probe writes one with -o FILE.json") from None
    wrong = {name: value for name, value in factors.items() if not 0 <= value < float("inf")}
    if wrong:
        raise BadInput(f"{path}: factors must be finite and not negative, got {wrong}; measure again")
    return factors
