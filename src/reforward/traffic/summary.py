"""A trace in numbers: lengths, arrivals, burstiness."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reforward.traffic.trace import Trace

MINUTE_S = 60.0
FEW_GAPS = 10
"""A coefficient of variation of fewer gaps says more about chance than about the traffic."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Distribution of a count of tokens."""

    p5: float
    p50: float
    p95: float
    mean: float
    max: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What `trace summary` prints. What needs more rows than there are is None."""

    source: str
    requests: int
    bad_rows: int
    unsorted: int
    """Rows that came later in the file than in time."""
    duration_s: float
    prompt: Spread
    output: Spread
    rate_per_s: float | None
    gap_cv: float | None
    """Coefficient of variation of the gaps between arrivals: 1 for a Poisson process, more is burstier."""
    dispersion_minute: float | None
    """Variance over mean of arrivals per whole minute: 1 for a Poisson process."""
    peak_minute: int
    """Most arrivals in one minute."""
    failed: int
    """Calls that ended with an error or without a token."""
    estimated: int
    """Requests whose token counts were estimated, since their server did not tell."""
    torn: int
    """Files that end in the middle of a line."""
    reuse: float | None
    """Share of prompt tokens that earlier prompts began with too; None if the trace does not say."""
    company: Spread | None
    """Requests in service when one arrives; None if the trace does not say."""
    distinct_arrivals: int
    """Fewer than the requests if timestamps are coarse (Mooncake's are rounded to about 3 s)."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return dataclasses.asdict(self)


def summarise(trace: Trace) -> Summary:
    """All figures of one trace."""
    arrivals = np.array([request.arrival_s for request in trace.requests])
    duration = float(arrivals[-1])
    gaps = np.diff(arrivals)
    last, minutes = _minutes(arrivals)
    return Summary(
        source=trace.source,
        requests=len(trace.requests),
        bad_rows=len(trace.bad_rows),
        unsorted=trace.unsorted,
        duration_s=duration,
        prompt=spread([request.prompt_tokens for request in trace.requests]),
        output=spread([request.output_tokens for request in trace.requests]),
        rate_per_s=float(len(gaps) / duration) if duration > 0 else None,
        gap_cv=float(gaps.std() / gaps.mean()) if len(gaps) >= FEW_GAPS and duration > 0 else None,
        dispersion_minute=_dispersion([count for minute, count in minutes.items() if minute < last], last),
        peak_minute=max(minutes.values()),
        failed=trace.failed,
        estimated=trace.estimated,
        torn=trace.torn,
        reuse=_reuse(trace),
        company=spread([request.in_flight for request in trace.requests]) if trace.requests[0].in_flight else None,
        distinct_arrivals=len(set(arrivals.tolist())),
    )


def _reuse(trace: Trace) -> float | None:
    if not any(request.blocks for request in trace.requests):
        return None
    return sum(r.reused_tokens for r in trace.requests) / sum(r.prompt_tokens for r in trace.requests)


def _minutes(arrivals: NDArray[np.float64]) -> tuple[int, dict[int, int]]:
    """The last minute, which is not whole, and arrivals in each minute that has any: a trace may span a year."""
    found, counts = np.unique((arrivals // MINUTE_S).astype(np.int64), return_counts=True)
    return int(found[-1]), dict(zip(found.tolist(), counts.tolist(), strict=True))


def _dispersion(counts: Sequence[int], minutes: int) -> float | None:
    """Variance over mean of arrivals a minute, when all other minutes have none."""
    if minutes < 2 or not counts:
        return None
    mean = sum(counts) / minutes
    return (sum(count * count for count in counts) / minutes - mean**2) / mean


def spread(counts: Sequence[int]) -> Spread:
    """Percentiles by linear interpolation."""
    p5, p50, p95 = (float(value) for value in np.percentile(counts, (5, 50, 95)))
    return Spread(p5=p5, p50=p50, p95=p95, mean=float(np.mean(counts)), max=max(counts))
