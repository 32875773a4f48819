"""Step times of a layout and how far off they may be: the one place where the search meets the cost model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reforward.domain.errors import BadInput
from reforward.plan import tables
from reforward.plan.calibrate import Scaled
from reforward.plan.case import Price, Priced
from reforward.plan.closed import Load, closed
from reforward.plan.engine import Engine, Limits
from reforward.plan.features import features
from reforward.plan.forward import Forward
from reforward.plan.gpu import Gpu
from reforward.plan.layered import Layered
from reforward.plan.layout import Layout
from reforward.plan.memory import fits
from reforward.plan.model import Model
from reforward.plan.normal import at_share
from reforward.plan.operators import Operators
from reforward.plan.residual import Residual, apply
from reforward.plan.routing import Routing
from reforward.plan.steps import StepTimes

KNOWN_SPREAD, GUESS_SPREAD = 0.2, 0.35
"""Standard deviations of the log of true over planned step times, with measured operators and with a datasheet alone: round
figures above what blind replays of served requests were off by (docs/plan.md). More where served points were off by more."""
TYPICAL = Load.of(1024, 256, (4, 32, 256))
"""Closed loops at which it is asked how far off served points of such a configuration were: few, some, and many in flight."""
HALF = at_share(0.95)
"""Deviations from the middle to an end of a 90 % interval."""


@dataclass(frozen=True)
class Pricing:
    """Step times from operators; each term times its factor if a calibration is given. A `Price`."""

    factors: Mapping[str, float] | None = None
    named: str = ""
    """Where the factors come from."""
    routing: Routing | None = None
    """How real traffic spreads over experts; None: the usual skew."""
    _operators: dict[tuple[str, str], Operators] = field(default_factory=dict[tuple[str, str], Operators], repr=False)

    def __call__(self, model: Model, gpu: Gpu, layout: Layout, engine: Engine) -> Priced:
        operators = self._operators.setdefault((gpu.name, engine.name), Operators(gpu, engine.name))
        steps: StepTimes = Layered(
            forward=Forward(model=model, layout=layout, operators=operators, routing=self.routing)
        )
        known = operators.known
        spread = max(KNOWN_SPREAD, served_spread(steps, model, gpu, layout, engine)) if known else GUESS_SPREAD
        about = (
            "measured operators (aiconfigurator-core)" if known else "the datasheet alone, so the intervals are wide"
        )
        if not known and not installed():
            about += "; pip install 'reforward[plan]' brings measured operators of NVIDIA's GPUs"
        if self.factors is not None:
            steps, about = Scaled(base=steps, factors=self.factors), f"{about}; corrected by {self.named}"
        return Priced(steps=steps, prefill_spread=spread, decode_spread=spread, about=about)


def served_spread(steps: StepTimes, model: Model, gpu: Gpu, layout: Layout, engine: Engine) -> float:
    """Standard deviation of the log of served over planned seconds per token, as held-out points of such configurations had it."""
    memory = fits(model, gpu, layout, engine, Limits())
    state = closed(steps, memory, layout, TYPICAL)
    residual = Residual.read()
    rows = residual.rows(features(model, gpu, layout, engine.name, memory, state, measured=True))
    _, half = apply(residual.tpot, rows)
    return float(np.median(half)) / HALF


def installed() -> bool:
    """Whether the package of measured operators is here."""
    return tables.folder() is not None


def pricing(calibration: Path | None, routing: Path | None = None) -> Price:
    """Prices, corrected if a calibration is given, for the experts that a histogram says are used."""
    return Pricing(
        factors=read_factors(calibration) if calibration else None,
        named=calibration.name if calibration else "",
        routing=read_routing(routing) if routing else None,
    )


def read_routing(path: Path) -> Routing:
    """A JSON list: how many tokens each expert got."""
    try:
        counts = np.array(json.loads(path.read_text(encoding="utf-8")), dtype=np.float64)
    except (ValueError, TypeError):
        raise BadInput(f"{path} holds no counts; it needs a JSON list with the tokens that each expert got") from None
    return Routing.counted(counts)


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
