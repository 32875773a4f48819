"""Which traffic a command works on: a trace split in time, each half distilled, lengths scaled so that a pass is affordable."""

import time
from dataclasses import dataclass

from reforward.app.settings import Settings
from reforward.app.subjects import Loaded
from reforward.domain.ports import Engine
from reforward.domain.spec import Limits, Segment
from reforward.domain.workload import Request, Workload
from reforward.traffic.distil import Recipe, distil, split
from reforward.traffic.packaged import CITATION, packaged_trace
from reforward.traffic.trace import Trace, read_trace

PASS_S = 4.0
"""Seconds that one slow pass of the stock forward should take when the scale is ours to choose."""
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

    def describe(self) -> str:
        """One line for people."""
        work = self.search
        if work.inputs:
            return f"{work.inputs} fresh inputs a pass"
        prompt = sum(request.prompt_tokens for request in work.requests)
        scale = "" if work.length_scale == 1 else f", token counts scaled by {work.length_scale:g}"
        bad = f", {self.bad_rows} bad rows left out" if self.bad_rows else ""
        return (
            f"{len(work.requests)} requests distilled from {work.source}{scale}: {prompt} prompt and "
            f"{work.output_tokens} output tokens a pass, {work.concurrency} in flight{bad}"
        )


def workloads(loaded: Loaded, engine: Engine, settings: Settings) -> Traffic:
    """Distil what the settings ask for; lengths are scaled by what they say, or by what a short probe suggests."""
    if loaded.subject.host == "module":
        drawn = Workload(name=loaded.subject.name, source="inputs() of the subject", inputs=MODULE_INPUTS)
        return Traffic(search=drawn, held_out=drawn)
    trace, source = _trace(settings)
    earlier, later = split(trace.requests)
    scale = settings.length_scale or _affordable(engine, loaded, earlier, settings.requests)
    recipe = Recipe(count=settings.requests, length_scale=scale, concurrency=min(settings.requests, 4))
    return Traffic(
        search=distil(earlier, recipe, name=loaded.subject.name, source=source),
        held_out=distil(later, recipe, name=f"{loaded.subject.name}, held out", source=source),
        bad_rows=len(trace.bad_rows),
    )


def _trace(settings: Settings) -> tuple[Trace, str]:
    if settings.traffic is None:
        return packaged_trace(), CITATION
    trace = read_trace(settings.traffic)
    return trace, trace.source


def _affordable(engine: Engine, loaded: Loaded, window: tuple[Request, ...], count: int) -> float:
    """The largest power of two at which a pass of the stock forward takes about `PASS_S`, from a probe of its speed."""
    prefill_s, decode_s = _probe(engine, loaded)
    assert engine.spec is not None
    prompt = sum(request.prompt_tokens for request in window) / len(window) * count
    output = sum(request.output_tokens for request in window) / len(window) * count
    longest = max(request.prompt_tokens + request.output_tokens for request in window)
    fits = [
        scale
        for scale in SCALES
        if scale * (prompt * prefill_s + output * decode_s) <= PASS_S and scale * longest <= engine.spec.max_positions
    ]
    return fits[0] if fits else SCALES[-1]


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
