"""What a service promises: a limit on a percentile of a latency, with its unit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import BadInput
from reforward.plan.replay import Replayed

Metric = Literal["ttft", "itl", "tpot", "e2e"]
METRICS: tuple[Metric, ...] = ("ttft", "itl", "tpot", "e2e")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
FORM = re.compile(r"\s*([a-z0-9]+)_p([\d.]+)\s*(?:=|<=|<)\s*([-+]?[\d.]+)\s*([a-zA-Z/]*)\s*")
EXAMPLE = "give it as METRIC_pPERCENTILE=TIME, such as ttft_p90=500ms or itl_p99=30ms"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """`ttft`: arrival to first token. `itl`: between tokens, all gaps of all requests. `tpot`: a token after the first,
    mean of a request. `e2e`: arrival to last token."""

    metric: Metric
    percentile: float
    seconds: float

    @property
    def name(self) -> str:
        """Such as `ttft_p90`."""
        return f"{self.metric}_p{self.percentile:g}"

    @property
    def words(self) -> str:
        """Such as `ttft_p90 <= 500 ms`."""
        return f"{self.name} <= {self.seconds * 1e3:g} ms"


def parse_sla(texts: Sequence[str]) -> tuple[Limit, ...]:
    """One limit a text; `BadInput` says which is wrong and how to write it."""
    limits = tuple(_parse(text) for text in texts)
    names = [limit.name for limit in limits]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"the SLA limits {twice[0]} twice; keep the limit that you mean")
    return limits


def _parse(text: str) -> Limit:
    found = FORM.fullmatch(text)
    if not found:
        raise BadInput(f"the SLA {text!r} cannot be read; {EXAMPLE}")
    metric, percentile, value, unit = found[1], _number(found[2], text), _number(found[3], text), found[4]
    if metric not in METRICS:
        raise BadInput(f"the SLA {text!r} names {metric!r}, which is none of {', '.join(METRICS)}; {EXAMPLE}")
    if not 0 < percentile < 100:
        raise BadInput(f"the SLA {text!r} names percentile {percentile:g}; give one between 0 and 100, such as p90")
    if unit not in UNITS:
        what = f"has the unit {unit!r}" if unit else "has no unit"
        raise BadInput(
            f"the SLA {text!r} {what}; give one of {', '.join(UNITS)}, such as {metric}_p{percentile:g}=500ms"
        )
    if value <= 0:
        raise BadInput(f"the SLA {text!r} must be above 0; {EXAMPLE}")
    return Limit(metric=metric, percentile=percentile, seconds=value * UNITS[unit])


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"the SLA {whole!r} has {text!r} where a number belongs; {EXAMPLE}") from None


def measured(metric: Metric, percentile: float, run: Replayed, first: int = 0) -> float:
    """Seconds at a percentile over the requests from `first` on; 0 if there is nothing to measure."""
    if metric == "itl":
        return weighted_percentile(*run.gaps(first), percentile)
    values = {"ttft": run.ttft, "e2e": run.e2e, "tpot": run.tpot}[metric][first:]
    if metric == "tpot":
        values = values[run.output[first:] > 1]
    return float(np.percentile(values, percentile)) if len(values) else 0.0


def weighted_percentile(values: NDArray[np.float64], counts: NDArray[np.float64], percentile: float) -> float:
    """The smallest value that this share of all counted values does not exceed; 0 if there are none."""
    values, counts = values[counts > 0], counts[counts > 0]
    if not len(values):
        return 0.0
    order = np.argsort(values)
    total: NDArray[np.float64] = np.cumsum(counts[order])
    place = int(np.searchsorted(total, percentile / 100 * float(total[-1])))
    return float(values[order][min(place, len(values) - 1)])
