"""When nothing fits: what came closest, by how much it misses, and the cheapest change after which something fits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reforward.plan.case import IDLE, Case, Question
from reforward.plan.rows import SURE_Z
from reforward.plan.search import Found, fitting, search
from reforward.plan.sla import Limit, measured

LAYOUTS = 3
"""Layouts that a change is tried on: those that came closest."""
MOST_GPUS = 4096
ROOM = 1.1
"""By how much a loosened limit exceeds what was replayed."""


@dataclass(frozen=True, kw_only=True)
class Miss:
    """The closest, and the way out."""

    what: str
    """The configuration that came closest."""
    shortfall: str
    remedy: str
    """The first change, in the order of what it costs, after which the planner finds something; empty if none does."""


def nearest(question: Question, found: Found) -> Miss:
    """Why nothing was found, and what would be enough."""
    if not found.cases:
        return _no_memory(question, found)
    ratios = [(case.at(case.bound * IDLE).ratio, case) for case in found.cases]
    ratio, case = min(ratios, key=lambda pair: pair[0])
    shortfall = _idle_words(case) if ratio > 1 else _load_words(question, case)
    layouts = [case.layout for _, case in sorted(ratios, key=lambda pair: pair[0])[:LAYOUTS]]
    words = f"{case.layout}, {case.limits.max_num_seqs} sequences, {case.limits.max_num_batched_tokens} tokens a step"
    for change, changed in _changes(question, case, ratio):
        grown = changed.gpus != question.gpus
        if search(changed, None if grown else layouts).rows:
            return Miss(what=words, shortfall=shortfall, remedy=change)
    return Miss(what=words, shortfall=shortfall, remedy="")


def _no_memory(question: Question, found: Found) -> Miss:
    in_memory = [one for one in found.unfit if one.memory is not None]
    if not in_memory:
        why = found.unfit[0].why if found.unfit else "no layout"
        return Miss(what="no layout", shortfall=why, remedy="")
    closest = max(in_memory, key=lambda one: one.memory.kv_budget if one.memory else 0.0)
    for change, changed in _changes(question, None, 1.0):
        if fitting(changed):
            return Miss(what=str(closest.layout), shortfall=closest.why, remedy=change)
    return Miss(what=str(closest.layout), shortfall=closest.why, remedy="")


def _idle_words(case: Case) -> str:
    """By how much the SLA is missed without any load."""
    outcome = case.at(case.bound * IDLE)
    broken = [f"{name} is {ratio:.2f}x its limit" for name, ratio in outcome.ratios.items() if ratio > 1]
    return f"even without load {', '.join(broken)}"


def _load_words(question: Question, case: Case) -> str:
    capacity = case.capacity()
    replicas = question.gpus // case.layout.gpus
    if question.rate is None:
        return f"the SLA holds for {capacity * replicas:.3g} requests a second, but not with 90 % probability"
    return f"{replicas} replicas carry {capacity * replicas:.3g} of {question.rate:.3g} requests a second"


def _changes(question: Question, case: Case | None, ratio: float) -> Iterator[tuple[str, Question]]:
    """What could be changed, the cheapest first."""
    model, dtypes = question.model, question.model.dtypes
    can_fp8 = "fp8" in question.gpu.flops
    if dtypes.kv == "bf16" and can_fp8:
        kv = model.quantised(replace(dtypes, kv="fp8"))
        yield "an fp8 KV cache (--kv-dtype fp8)", replace(question, model=kv)
    if dtypes.attention == "bf16" and can_fp8:
        yield "fp8 weights (--dtype fp8)", replace(question, model=model.in_precision("fp8", kv="fp8"))
    for gpus in _more(question, case, ratio):
        yield f"more GPUs (--gpus {gpus})", replace(question, gpus=gpus)
    if case is not None:
        loose = tuple(_loosened(case, one) for one in question.sla)
        words = " ".join(f"--sla {one.name}={one.seconds * 1e3:.0f}ms" for one in loose)
        yield f"a looser SLA ({words})", replace(question, sla=loose)


def _more(question: Question, case: Case | None, ratio: float) -> Iterator[int]:
    """Numbers of GPUs that may be enough: as many as the rate needs, or replicas of more GPUs."""
    if ratio <= 1 and case is not None and question.rate is not None:
        replicas = int(question.rate / max(case.capacity(SURE_Z), 1e-9)) + 1
        if replicas * case.layout.gpus <= MOST_GPUS:
            yield replicas * case.layout.gpus
    else:
        yield from (
            one for one in (2 * question.gpus, 4 * question.gpus, 8 * question.gpus) if one <= question.gpu.scale_up
        )


def _loosened(case: Case, limit: Limit) -> Limit:
    """The limit, or what a case gives without load at the pessimistic end, and some room."""
    outcome = case.at(case.bound * IDLE, SURE_Z)
    needed = measured(limit.metric, limit.percentile, outcome.run, outcome.first) * ROOM
    return replace(limit, seconds=max(limit.seconds, needed))
