"""A window of traffic in small: a few observed requests that stand for all of them."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request, Workload

DRAWS = 512
"""Stratified samples tried; the one whose weighted totals are nearest to the window's is kept."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """Assumed speed of the server for Little's law, seconds per token of one request. Stated, not measured."""

    prefill_s: float = 0.0005
    decode_s: float = 0.03


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to distil."""

    count: int = 8
    """Requests in the workload."""
    seed: int = 0
    length_scale: float = 1.0
    """Multiplies token counts; none falls below 1."""
    concurrency: int | None = None
    """Requests in flight during replay; None: by Little's law from the window, with `service`."""
    service: Service = Service()

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.length_scale <= 1 or (self.concurrency is not None and self.concurrency < 1):
            raise BadInput(f"a recipe needs count >= 1, 0 < length_scale <= 1 and concurrency >= 1, got {self!r}")


def distil(window: Sequence[Request], recipe: Recipe, *, name: str, source: str) -> Workload:
    """The same window, recipe and seed give the same workload.

    Requests are sorted into `count` strata of equal size by prompt length, each cut by output length, and one is drawn
    from each; weights are the strata's sizes. Of many such samples the one is kept whose weighted totals of prompt and
    output tokens are nearest to the window's (after scaling and rounding, so that short outputs are not inflated).
    """
    if not window:
        raise BadInput("a workload cannot be distilled from a window without requests")
    scaled = [_scaled(request, recipe.length_scale) for request in window]
    goal = [recipe.length_scale * total for total in _totals(window, [1.0] * len(window))]
    strata = _strata(scaled, min(recipe.count, len(scaled)))
    draw = random.Random(recipe.seed)
    samples = ([draw.choice(stratum) for stratum in strata] for _ in range(DRAWS))
    weights = [float(len(stratum)) for stratum in strata]
    best = min(samples, key=lambda sample: _mismatch(sample, weights, goal))
    order = sorted(range(len(best)), key=lambda index: best[index].arrival_s)
    origin = best[order[0]].arrival_s
    return Workload(
        name=name,
        source=source,
        requests=tuple(replace(best[i], arrival_s=round(best[i].arrival_s - origin, 6)) for i in order),
        weights=tuple(weights[i] for i in order),
        length_scale=recipe.length_scale,
        concurrency=min(len(best), recipe.concurrency or concurrency(window, recipe.service)),
    )


def concurrency(window: Sequence[Request], service: Service) -> int:
    """Little's law (Little, Operations Research 1961): requests in flight = arrival rate x mean time in service."""
    duration = window[-1].arrival_s - window[0].arrival_s
    if duration <= 0:
        return 1
    prompt, output = _totals(window, [1.0] * len(window))
    return max(1, round((prompt * service.prefill_s + output * service.decode_s) / duration))


def split(requests: Sequence[Request], share: float = 0.5) -> tuple[tuple[Request, ...], tuple[Request, ...]]:
    """The earlier `share` of the time, to search on, and the later rest, held out to confirm on."""
    if len(requests) < 2:
        raise BadInput(f"a split in time needs at least two requests, got {len(requests)}")
    end = requests[0].arrival_s + share * (requests[-1].arrival_s - requests[0].arrival_s)
    cut = sum(request.arrival_s <= end for request in requests)
    cut = min(max(cut, 1), len(requests) - 1)
    return tuple(requests[:cut]), tuple(requests[cut:])


def _scaled(request: Request, scale: float) -> Request:
    return replace(
        request,
        prompt_tokens=max(1, round(request.prompt_tokens * scale)),
        output_tokens=max(1, round(request.output_tokens * scale)),
    )


def _strata(requests: Sequence[Request], count: int) -> list[list[Request]]:
    """`count` groups of sizes that differ by at most one: columns by prompt length, cut by output length."""
    columns = max(1, round(math.sqrt(count)))
    by_prompt = sorted(requests, key=lambda r: (r.prompt_tokens, r.output_tokens, r.arrival_s))
    strata: list[list[Request]] = []
    for column in range(columns):
        first, last = column * count // columns, (column + 1) * count // columns
        part = by_prompt[first * len(requests) // count : last * len(requests) // count]
        by_output = sorted(part, key=lambda r: (r.output_tokens, r.prompt_tokens, r.arrival_s))
        cells = last - first
        strata += [by_output[i * len(part) // cells : (i + 1) * len(part) // cells] for i in range(cells)]
    return strata


def _mismatch(sample: Sequence[Request], weights: Sequence[float], goal: Sequence[float]) -> float:
    return max(abs(math.log(total / aim)) for total, aim in zip(_totals(sample, weights), goal, strict=True))


def _totals(requests: Sequence[Request], weights: Sequence[float]) -> tuple[float, float]:
    pairs = list(zip(requests, weights, strict=True))
    return sum(r.prompt_tokens * w for r, w in pairs), sum(r.output_tokens * w for r, w in pairs)
