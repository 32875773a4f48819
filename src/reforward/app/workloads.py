"""Which traffic a command works on: a trace split in time, each half distilled, lengths scaled so that a pass is affordable."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from reforward.app.settings import Settings
from reforward.app.subjects import Loaded
from reforward.domain.ports import Engine
from reforward.domain.spec import Limits, Segment
from reforward.domain.workload import Request, Workload
from reforward.traffic.distil import Fidelity, Recipe, distil, fidelity, split
from reforward.traffic.packaged import CITATION, packaged_trace
from reforward.traffic.trace import Trace, read_trace

PASS_S = 4.0
"""Seconds that one slow pass of the stock forward should take when the scale is ours to choose."""
LEAST_OUTPUT = 8
"""Output tokens that a request should keep on average: below it, what surrounds the steps is measured, not the steps."""
PROBE_PROMPT, PROBE_STEPS = 64, 6
SCALES = tuple(2.0**-i for i in range(8))
MODULE_INPUTS = 8
"""Fresh inputs of one pass over a module."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What candidates are searched on, and a later window that winners are confirmed on."""

    search: Workload
    held_out: Workload
    bad_rows: int = 0
    unsorted: int = 0
    fidelity: Fidelity | None = None
    """How well the search's workload stands for the later window; None for inputs that are drawn."""

    def describe(self) -> str:
        """One line for people."""
        bad = f", {self.bad_rows} bad rows left out" if self.bad_rows else ""
        bad += f", {self.unsorted} rows sorted by time" if self.unsorted else ""
        if self.fidelity:
            bad += f"; {self.fidelity.distance:.2f} from later traffic, {self.fidelity.by_chance:.2f} if drawn blindly"
        return self.search.words + bad

    def warning(self) -> str:
        """What to think of requests that are too short to stand for the traffic; empty if they are not."""
        mean = self.search.output_tokens / max(1, len(self.search.requests))
        if self.search.inputs or mean >= LEAST_OUTPUT:
            return ""
        return (
            f"requests are very short, {mean:.1f} output tokens on average: gains may not hold for the traffic itself; "
            f"pass a larger --length-scale (it is {self.search.length_scale:g})"
        )


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A trace, and where it came from."""

    trace: Trace
    source: str


def observed(settings: Settings) -> Observed:
    """The trace that the settings name, or the packaged slice."""
    if settings.traffic is None:
        return Observed(trace=packaged_trace(), source=CITATION)
    trace = read_trace(settings.traffic)
    return Observed(trace=trace, source=trace.source)


def workloads(
    loaded: Loaded, engine: Engine, settings: Settings, seen: Observed | None = None, known: Sequence[Workload] = ()
) -> Traffic:
    """Distil what the settings ask for from what was seen; lengths are scaled by what they say.

    If they say nothing: by the scale of the first of the `known` workloads that comes out again, else by what a short
    probe of the stock forward's speed suggests.
    """
    if loaded.subject.host == "module":
        drawn = Workload(name=loaded.subject.name, source="inputs() of the subject", inputs=MODULE_INPUTS)
        return Traffic(search=drawn, held_out=drawn)
    seen = seen or observed(settings)
    if settings.length_scale:
        return _distilled(loaded, seen, settings.requests, settings.length_scale)
    for scale in dict.fromkeys(workload.length_scale for workload in known):
        again = _distilled(loaded, seen, settings.requests, scale)
        if again.search in known:
            return again
    window, _ = split(seen.trace.requests)
    return _distilled(loaded, seen, settings.requests, _affordable(engine, loaded, window, settings.requests))


def _distilled(loaded: Loaded, seen: Observed, count: int, scale: float) -> Traffic:
    earlier, later = split(seen.trace.requests)
    recipe = Recipe(count=count, length_scale=scale, concurrency=min(count, 4))
    search = distil(earlier, recipe, name=loaded.subject.name, source=seen.source)
    return Traffic(
        search=search,
        held_out=distil(later, recipe, name=f"{loaded.subject.name}, held out", source=seen.source),
        bad_rows=len(seen.trace.bad_rows),
        unsorted=seen.trace.unsorted,
        fidelity=fidelity(search, earlier, later, recipe),
    )


def _affordable(engine: Engine, loaded: Loaded, window: tuple[Request, ...], count: int) -> float:
    """The scale at which a pass of the stock forward takes about `PASS_S`, from a probe of its speed."""
    prefill_s, decode_s = _probe(engine, loaded)
    assert engine.spec is not None
    return choose_scale(window, count, prefill_s, decode_s, engine.spec.max_positions)


def choose_scale(window: Sequence[Request], count: int, prefill_s: float, decode_s: float, positions: int) -> float:
    """The largest power of two at which `count` mean requests take at most `PASS_S`, all requests fit into `positions`.

    Never so small, for time alone, that a mean request keeps fewer than `LEAST_OUTPUT` output tokens.
    """
    prompt = sum(request.prompt_tokens for request in window) / len(window)
    output = sum(request.output_tokens for request in window) / len(window)
    longest = max(request.prompt_tokens + request.output_tokens for request in window)
    cost = count * (prompt * prefill_s + output * decode_s)
    scale = next((scale for scale in SCALES if scale * cost <= PASS_S), 0.0)
    scale = max(scale, min(1.0, math.ceil(1000 * LEAST_OUTPUT / output) / 1000))
    return scale if scale * longest <= positions else 2.0 ** math.floor(math.log2(positions / longest))


def _probe(engine: Engine, loaded: Loaded) -> tuple[float, float]:
    """Seconds per prompt token and per decoded token of the stock forward, roughly."""
    assert engine.spec is not None
    limits = Limits(slots=1, length=PROBE_PROMPT + PROBE_STEPS, tokens=PROBE_PROMPT, rows=1)
    worker = engine.start_lm(engine.prepare(loaded.stock), depth=engine.spec.layers, limits=limits)
    try:
        begun = time.perf_counter()
        prompt = [token % engine.spec.vocab for token in range(1000, 1000 + PROBE_PROMPT)]
        last = worker.step(prompt, [Segment(slot=0, start=0, length=PROBE_PROMPT)], [PROBE_PROMPT - 1], 0)
        prefilled = time.perf_counter()
        for step in range(PROBE_STEPS - 1):
            last = worker.step(last, [Segment(slot=0, start=PROBE_PROMPT + step, length=1)], [0], 0)
        decoded = time.perf_counter()
    finally:
        worker.close()
    return (prefilled - begun) / PROBE_PROMPT, (decoded - prefilled) / (PROBE_STEPS - 1)
