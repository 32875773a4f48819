"""A window of traffic in small: a few observed requests that stand for all of them."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request, Workload
from reforward.traffic.company import in_flight
from reforward.traffic.likeness import Body, Scale, gaps, points, thin

DRAWS = 64
"""Stratified samples drawn to begin with."""
ROUNDS = 8
CANDIDATES = 200
"""Rounds over all strata, and requests of a stratum that are tried in each."""
BLIND = 101
MISMATCH = 4.0
"""What a relative error of a total counts beside the energy distance, which is in deviations: 5 % as much as 0.2."""


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
    from each; weights are the strata's sizes. Starting from the best of many such draws, the request of one stratum after
    the other is exchanged for the one that brings the sample nearest to the window: jointly in prompt, output, requests in
    flight and reused prefix (`likeness.energy`), and in the weighted totals of tokens (after scaling and rounding, so that
    short outputs are not inflated).
    """
    if not window:
        raise BadInput("a workload cannot be distilled from a window without requests")
    placed = with_company(window, recipe.service)
    scaled = [_scaled(request, recipe.length_scale) for request in placed]
    goal = [recipe.length_scale * total for total in _totals(window, [1.0] * len(window))]
    strata = _strata(scaled, min(recipe.count, len(scaled)))
    best = _Sampler(scaled, strata, goal).best(random.Random(recipe.seed))
    weights = [float(len(stratum)) for stratum in strata]
    order = sorted(range(len(best)), key=lambda index: best[index].arrival_s)
    origin = best[order[0]].arrival_s
    return Workload(
        name=name,
        source=source,
        requests=tuple(replace(best[i], arrival_s=round(best[i].arrival_s - origin, 6), blocks=()) for i in order),
        weights=tuple(weights[i] for i in order),
        length_scale=recipe.length_scale,
        concurrency=min(len(best), recipe.concurrency or concurrency(window, recipe.service)),
    )


def with_company(window: Sequence[Request], service: Service) -> list[Request]:
    """The window with requests in flight at each arrival: as the trace says, else as `service` would have them."""
    if all(request.in_flight for request in window):
        return list(window)
    busy = [r.prompt_tokens * service.prefill_s + r.output_tokens * service.decode_s for r in window]
    company = in_flight([request.arrival_s for request in window], busy)
    return [replace(request, in_flight=count) for request, count in zip(window, company, strict=True)]


class _Sampler:
    """Chooses one request of each stratum. Indices refer to the window's requests."""

    def __init__(self, requests: Sequence[Request], strata: Sequence[Sequence[int]], goal: Sequence[float]) -> None:
        self._requests, self._strata, self._goal = requests, strata, goal
        found = points(requests)
        self._points = Scale(found)(found)
        self._window = thin(self._points)
        sizes = np.array([len(stratum) for stratum in strata], dtype=np.float64)
        self._weights, self._shares = sizes, sizes / sizes.sum()
        self._tokens = np.array([(r.prompt_tokens, r.output_tokens) for r in requests], dtype=np.float64)

    def best(self, draw: random.Random) -> list[Request]:
        """The sample that all exchanges of one request leave as it is, or after `ROUNDS` of them."""
        drawn = ([draw.choice(stratum) for stratum in self._strata] for _ in range(DRAWS))
        chosen = min(drawn, key=lambda sample: self._costs(np.array([sample]))[0])
        for _ in range(ROUNDS):
            before = list(chosen)
            for place, stratum in enumerate(self._strata):
                candidates = sorted(draw.sample(stratum, CANDIDATES)) if len(stratum) > CANDIDATES else list(stratum)
                candidates.append(chosen[place])
                samples = np.tile(chosen, (len(candidates), 1))
                samples[:, place] = candidates
                chosen[place] = candidates[int(np.argmin(self._costs(samples)))]
            if chosen == before:
                break
        return [self._requests[index] for index in chosen]

    def _costs(self, samples: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of samples [m, strata]: energy distance to the window up to a constant, and the worse mismatch of totals."""
        at = self._points[samples]
        used, places = np.unique(samples, return_inverse=True)
        far = gaps(self._points[used], self._window).mean(axis=1)[places].reshape(samples.shape)
        within = np.sqrt(((at[:, :, None, :] - at[:, None, :, :]) ** 2).sum(axis=3))
        energy = 2 * far @ self._shares - np.einsum("i,mij,j->m", self._shares, within, self._shares)
        totals = np.einsum("i,mic->mc", self._weights, self._tokens[samples])
        return energy + MISMATCH * np.abs(np.log(totals / np.array(self._goal))).max(axis=1)


def concurrency(window: Sequence[Request], service: Service) -> int:
    """Little's law (Little, Operations Research 1961): requests in flight = arrival rate x mean time in service."""
    duration = window[-1].arrival_s - window[0].arrival_s
    if duration <= 0:
        return 1
    prompt, output = _totals(window, [1.0] * len(window))
    return max(1, round((prompt * service.prefill_s + output * service.decode_s) / duration))


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """How well a workload stands for traffic that it was not made from. Energy distances, in deviations of that traffic."""

    distance: float
    """Of the weighted requests from those held out."""
    by_chance: float
    """Of as many requests drawn blindly from the same window: the median of `BLIND` draws."""
    floor: float
    """Of the whole window: what traffic itself moved, which no sample of the window can undo."""


def fidelity(workload: Workload, window: Sequence[Request], later: Sequence[Request], recipe: Recipe) -> Fidelity:
    """Judge a workload that was distilled from `window` with `recipe` on the requests that came `later`."""
    past, future = (
        points([_scaled(request, recipe.length_scale) for request in with_company(part, recipe.service)])
        for part in (window, later)
    )
    scale = Scale(future)
    past, body = scale(past), Body(scale(future))
    draw = np.random.default_rng(recipe.seed)
    count = min(len(workload.requests), len(past))
    blind = [body.energy(past[draw.choice(len(past), count, replace=False)]) for _ in range(BLIND)]
    return Fidelity(
        distance=body.energy(scale(points(workload.requests)), workload.weights),
        by_chance=float(np.median(blind)),
        floor=body.energy(thin(past)),
    )


def split(requests: Sequence[Request], share: float = 0.5) -> tuple[tuple[Request, ...], tuple[Request, ...]]:
    """The earlier `share` of the time, to search on, and the later rest, held out to confirm on."""
    if len(requests) < 2:
        raise BadInput(f"a split in time needs at least two requests, got {len(requests)}")
    end = requests[0].arrival_s + share * (requests[-1].arrival_s - requests[0].arrival_s)
    cut = sum(request.arrival_s <= end for request in requests)
    cut = min(max(cut, 1), len(requests) - 1)
    return tuple(requests[:cut]), tuple(requests[cut:])


def _scaled(request: Request, scale: float) -> Request:
    prompt = max(1, round(request.prompt_tokens * scale))
    return replace(
        request,
        prompt_tokens=prompt,
        output_tokens=max(1, round(request.output_tokens * scale)),
        reused_tokens=min(prompt, round(request.reused_tokens * scale)),
    )


def _strata(requests: Sequence[Request], count: int) -> list[list[int]]:
    """Indices in `count` groups of sizes that differ by at most one: columns by prompt length, cut by output length."""
    columns = max(1, round(math.sqrt(count)))
    shapes = [(r.prompt_tokens, r.output_tokens, r.arrival_s) for r in requests]
    by_prompt = sorted(range(len(requests)), key=shapes.__getitem__)
    strata: list[list[int]] = []
    for column in range(columns):
        first, last = column * count // columns, (column + 1) * count // columns
        part = by_prompt[first * len(requests) // count : last * len(requests) // count]
        by_output = sorted(part, key=lambda i: (shapes[i][1], shapes[i][0], shapes[i][2]))
        cells = last - first
        strata += [by_output[i * len(part) // cells : (i + 1) * len(part) // cells] for i in range(cells)]
    return strata


def _totals(requests: Sequence[Request], weights: Sequence[float]) -> tuple[float, float]:
    pairs = list(zip(requests, weights, strict=True))
    return sum(r.prompt_tokens * w for r, w in pairs), sum(r.output_tokens * w for r, w in pairs)
