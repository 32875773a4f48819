"""All layouts and batch limits that fit, those that cannot win left out, the rest replayed: ranked, and how sure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reforward.domain.errors import BadInput
from reforward.plan.case import IDLE, Case, Priced, Question
from reforward.plan.disagg import pairs
from reforward.plan.engine import Limits
from reforward.plan.layout import Layout
from reforward.plan.memory import Memory, fits
from reforward.plan.rows import SURE_Z, Row, pair_row, row_of

TOKENS = (8192, 2048, 16384, 512)
"""Tokens of a step that are tried, the usual first."""
SEATS = (256, 64, 1024, 16)
REFINED = 3
"""Layouts whose batch limits are searched."""
SHOWN = 6
BETTER = 1.05
"""Other limits are taken if they carry so much more."""


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """A layout for which nothing is left to search."""

    layout: Layout
    why: str
    memory: Memory | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """Rows that keep the SLA, best first; what was left out and why."""

    rows: tuple[Row, ...]
    unfit: tuple[Unfit, ...]
    cases: tuple[Case, ...]
    """All layouts that fit into memory, at the usual limits."""
    tried: int
    """Combinations of layout and limits that were replayed."""


def search(question: Question, layouts: Sequence[Layout] | None = None) -> Found:
    """Rank the layouts (default: all that the GPUs have room for) by tokens a second and GPU, or by GPUs if a rate is given."""
    cases, unfit = _cases(question, layouts or list(all_layouts(question)))
    best: dict[Layout, tuple[float, Case]] = {}
    tried = 0
    for case in sorted(cases, key=lambda one: -_per_gpu(one, one.bound)):
        if len(best) >= SHOWN and _per_gpu(case, case.bound) < sorted(_values(best))[-SHOWN]:
            continue
        best[case.layout] = (case.capacity(SURE_Z), case)
        tried += 1
    promising = sorted(best, key=lambda one: -_per_gpu(best[one][1], best[one][0]))
    for layout in promising[:REFINED]:
        best[layout], count = _refined(*best[layout])
        tried += count
    holding = [(capacity, case) for capacity, case in best.values() if capacity > 0]
    holding.sort(key=lambda one: -_per_gpu(one[1], one[0]))
    rows = [row_of(case, capacity) for capacity, case in holding[:SHOWN]]
    kept = [row for row in rows if row is not None]
    if layouts is None:
        kept += [pair_row(question, capacity, pair) for capacity, pair in pairs(question, cases, SURE_Z)]
    return Found(rows=tuple(sorted(kept, key=_order)[:SHOWN]), unfit=tuple(unfit), cases=tuple(cases), tried=tried)


def _values(best: dict[Layout, tuple[float, Case]]) -> list[float]:
    return [_per_gpu(case, capacity) for capacity, case in best.values()]


def _order(row: Row) -> tuple[float, float, float]:
    """By tokens a second and GPU. With a rate: by GPUs, of as many those with one role first, by how sure they are."""
    if row.case.question.rate is None:
        return (-row.tokens_per_gpu, 0.0, 0.0)
    return (row.gpus, float(row.pair is not None), -row.meets)


def all_layouts(question: Question) -> Iterator[Layout]:
    """Powers of two (and all GPUs) as a replica, split over tensor and data parallelism, experts whole or spread.

    Pipeline stages are tried where links are slow: beyond one host, or without a switch. Data parallel attention shares
    the experts, so it is tried with experts spread over all of its ranks.
    """
    most = min(question.gpus, question.gpu.scale_up)
    sizes = {1 << power for power in range(most.bit_length())} | {most}
    moe = question.model.moe is not None
    for size in sorted(one for one in sizes if one <= most):
        stages = (1, 2, 4) if question.gpu.topology == "pcie" or size > question.gpu.node else (1,)
        for pp in (one for one in stages if size % one == 0):
            ranks = size // pp
            for tp in (one for one in range(1, ranks + 1) if ranks % one == 0 and (moe or one == ranks)):
                spread = {1, ranks} if tp == ranks and moe else {ranks if moe else 1}
                for ep in sorted(spread):
                    yield Layout(tp=tp, dp=ranks // tp, pp=pp, moe_ep=ep)


def _cases(question: Question, layouts: Sequence[Layout]) -> tuple[list[Case], list[Unfit]]:
    cases: list[Case] = []
    unfit: list[Unfit] = []
    for layout in layouts:
        why = layout.why_not(question.model, question.gpu)
        if why:
            unfit.append(Unfit(layout=layout, why=why))
            continue
        found = make_case(question, layout, _usual(question))
        if isinstance(found, Unfit):
            unfit.append(found)
        else:
            cases.append(found)
    return cases, unfit


def fitting(question: Question) -> list[Case]:
    """The layouts that fit into memory, at the usual limits."""
    return _cases(question, list(all_layouts(question)))[0]


def _usual(question: Question) -> Limits:
    return Limits(
        max_num_seqs=question.seats or SEATS[0],
        max_num_batched_tokens=question.tokens or TOKENS[0],
        max_model_len=question.max_model_len or question.traffic.longest,
        memory_utilization=question.memory_utilization,
    )


def make_case(question: Question, layout: Layout, limits: Limits, priced: Priced | None = None) -> Case | Unfit:
    """The case, or why memory forbids it; `priced` if the layout's step times are there already."""
    memory = fits(question.model, question.gpu, layout, question.engine, limits)
    longest = question.traffic.longest
    if memory.kv_tokens // layout.pp < longest:
        return Unfit(layout=layout, why=_short_of(memory, longest * layout.pp), memory=memory)
    priced = priced or question.price(question.model, question.gpu, layout, question.engine)
    return Case(question=question, layout=layout, limits=limits, memory=memory, priced=priced)


def _short_of(memory: Memory, tokens: int) -> str:
    missing = (
        tokens * memory.kv_bytes_per_token + memory.state_bytes_per_sequence * memory.max_num_seqs - memory.kv_budget
    )
    return (
        f"memory ({memory.binding(tokens)}): {missing / 1e9:.1f} GB a GPU too much for one request of {tokens} tokens"
    )


def _per_gpu(case: Case, capacity: float) -> float:
    """What ranks a case: requests a second and GPU; with a rate, by the GPUs that it takes."""
    rate = case.question.rate
    if rate is None or capacity <= 0:
        return capacity / case.layout.gpus
    return rate / (np.ceil(rate / capacity) * case.layout.gpus)


def _refined(capacity: float, case: Case) -> tuple[tuple[float, Case], int]:
    """The best of other limits: tokens of a step first, then seats."""
    best, tried = (capacity, case), 0
    tokens = () if case.question.tokens else TOKENS[1:]
    seats = () if case.question.seats else SEATS[1:]
    for name, values in (("max_num_batched_tokens", tokens), ("max_num_seqs", seats)):
        for value in values:
            limits = replace(best[1].limits, **{name: value})
            if limits.max_num_seqs > limits.max_num_batched_tokens:
                continue
            found = make_case(case.question, case.layout, limits, case.priced)
            if isinstance(found, Unfit) or found.bound * 1.1 <= best[0] * BETTER:
                continue
            tried += 1
            if best[0] == 0 or found.at(best[0] * BETTER, SURE_Z).ratio <= 1:
                best = max(best, (found.capacity(SURE_Z, near=best[0] * BETTER), found), key=lambda one: one[0])
    return best, tried


def fewest(question: Question, most: int) -> tuple[Question, Found]:
    """The search with the fewest GPUs that carry the rate, up to `most`; without rows if none do.

    It begins with one scale-up domain and goes to what the best layout says it needs, twice as many at most: how regular
    arrivals are for a replica depends on how many share them.
    """
    if question.rate is None:
        raise BadInput("the fewest GPUs are asked for, but no rate is given; say --rate 12/s")
    asked = replace(question, gpus=min(question.gpu.scale_up, most))
    found = search(asked)
    while not found.rows and asked.gpus < most:
        asked = replace(asked, gpus=min(2 * asked.gpus, most))
        if found.cases and all(case.at(case.bound * IDLE, SURE_Z).ratio > 1 for case in found.cases):
            break
        found = search(asked)
    while found.rows and found.rows[0].gpus < asked.gpus:
        fewer = replace(asked, gpus=found.rows[0].gpus)
        again = search(fewer)
        if not again.rows:
            break
        asked, found = fewer, again
    return (replace(asked, gpus=found.rows[0].gpus) if found.rows else asked), found
