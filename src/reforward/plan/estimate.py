"""One configuration under one load: time per token and to the first, each with its 90 % interval, by term, and what binds."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reforward.plan.closed import Load, closed
from reforward.plan.engine import Engine, Limits
from reforward.plan.features import features
from reforward.plan.forward import Forward
from reforward.plan.gpu import Gpu
from reforward.plan.layered import Layered
from reforward.plan.layout import Layout
from reforward.plan.memory import Memory, fits
from reforward.plan.model import Model
from reforward.plan.operators import Operators
from reforward.plan.residual import Residual, apply
from reforward.plan.routing import Routing

Array = NDArray[np.float64]
UNMEASURED = 0.35
"""Added to the log half width where no operators of the GPU are measured: the roofline's own median error."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Seconds and their 90 % interval; arrays by load."""

    value: Array
    low: Array
    high: Array


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Means over a closed loop in its steady state; arrays by load."""

    tpot: Quantity
    ttft: Quantity
    terms: dict[str, Array]
    """Seconds of TPOT by term; the last, `correction`, is what served requests add to the operators' sum."""
    batch: Array
    memory: Memory
    measured: bool
    """Whether operators of this GPU were looked up; without them the intervals are wide."""
    rate: Array = field(repr=False)
    """Output tokens a second and GPU."""


@dataclass(frozen=True)
class Estimator:
    """Estimates for one GPU under one engine; keeps what it has looked up."""

    gpu: Gpu
    engine: Engine
    operators: Operators

    @classmethod
    def of(cls, gpu: Gpu, engine: Engine) -> "Estimator":
        """With the measured operators that are here."""
        return cls(gpu, engine, Operators(gpu, engine.name))

    def estimate(
        self, model: Model, layout: Layout, limits: Limits, load: Load, *, routing: Routing | None = None
    ) -> Estimate:
        """All loads of one layout at once. Raises `BadInput` if the layout is impossible."""
        layout.check(model, self.gpu)
        memory = fits(model, self.gpu, layout, self.engine, limits)
        forward = Forward(model=model, layout=layout, operators=self.operators, routing=routing)
        state = closed(Layered(forward=forward), memory, layout, load)
        known = self.operators.known
        residual = Residual.read()
        found = features(model, self.gpu, layout, self.engine.name, memory, state, measured=known)
        rows = residual.rows(found)
        wider = 0.0 if known else UNMEASURED
        centre, half = apply(residual.tpot, rows)
        tpot = _quantity(state.tpot_s, centre, half + wider)
        centre, half = apply(residual.ttft, rows)
        ttft = _quantity(state.ttft_s, centre, half + wider)
        seconds = ttft.value + tpot.value * (load.output - 1)
        return Estimate(
            tpot=tpot,
            ttft=ttft,
            terms={**state.terms, "correction": tpot.value - state.tpot_s},
            batch=state.batch,
            memory=memory,
            measured=known,
            rate=load.concurrency * load.output / seconds / layout.gpus,
        )


def _quantity(planned: Array, centre: Array, half: Array) -> Quantity:
    value = planned * np.exp(centre)
    return Quantity(value=value, low=value * np.exp(-half), high=value * np.exp(half))
