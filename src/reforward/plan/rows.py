"""One configuration as it is shown: at its load, with its interval, its probability, and what binds."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from reforward.plan.case import Case, Outcome, Question
from reforward.plan.disagg import Pair
from reforward.plan.normal import at_share, share_below
from reforward.plan.sla import METRICS, Metric, measured, weighted_percentile

SURE = 0.9
"""Load is chosen so that the SLA holds with this probability."""
SURE_Z = at_share(SURE)
EDGE_Z = at_share(0.95)
"""Ends of a 90 % interval."""
PARTS = (0.25, 0.5, 0.75)
"""Shares of a row's load that its line in a plot has points at."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One layout at its best limits and load, as it is shown. Seconds, requests and tokens a second."""

    case: Case
    """Disaggregated: of the replicas that answer."""
    pair: Pair | None
    words: str
    replicas: int
    rate: float
    """Of all replicas."""
    gpus: int
    tokens_per_gpu: float
    """Output tokens a second and GPU at this load."""
    interval: tuple[float, float]
    """90 % interval of the most output tokens a second and GPU under which the SLA holds."""
    tokens_per_user: float
    percentiles: dict[str, float]
    meets: float
    """Probability that the SLA holds at this load."""
    binding: str
    headroom: float
    """Share of the KV blocks that is free at the median step."""
    terms: dict[str, float]
    """Share of a median step by term."""
    outcome: Outcome


def row_of(case: Case, capacity: float) -> Row | None:
    """Everything that is shown of a case, at its own load; None if the GPUs do not carry the rate."""
    question, gpus = case.question, case.layout.gpus
    room = question.gpus // gpus
    replicas = room if question.rate is None else int(np.ceil(question.rate / capacity - 1e-9))
    if replicas > room:
        return None
    rate = capacity if question.rate is None else question.rate / replicas
    slow, fast = case.capacity(EDGE_Z, near=capacity * 0.9), case.capacity(-EDGE_Z, near=capacity * 1.5)
    return Row(
        case=case,
        pair=None,
        words=str(case.layout),
        replicas=replicas,
        rate=rate * replicas,
        gpus=replicas * gpus,
        binding=binding(case, case.at(rate, SURE_Z)),
        **_facts(case, case.at(rate), rate, gpus, (slow, capacity, fast)),
    )


def pair_row(question: Question, capacity: float, pair: Pair) -> Row:
    """The same of replicas for prompts and replicas for answers."""
    rate = question.rate or capacity
    worst = pair.at(rate, SURE_Z).worst
    slow, fast = pair.capacity(capacity, EDGE_Z), pair.capacity(capacity, -EDGE_Z)
    return Row(
        case=pair.decode,
        pair=pair,
        words=pair.words,
        replicas=1,
        rate=rate,
        gpus=pair.gpus,
        binding=f"{worst}: {'prompts are computed' if worst.startswith('ttft') else 'answers'}",
        **_facts(pair.decode, pair.at(rate), rate, pair.gpus, (slow, capacity, fast)),
    )


def _facts(
    case: Case, outcome: Outcome, rate: float, gpus: int, capacities: tuple[float, float, float]
) -> dict[str, Any]:
    """Fields of a row that a replay at its load gives; `capacities` at the slow edge, where one is sure, at the fast edge."""
    output = float(case.question.traffic.output.mean())
    slow, sure, fast = capacities
    median = measured("tpot", 50, outcome.run, outcome.first)
    return {
        "tokens_per_gpu": rate * output / gpus,
        "interval": (slow * output / gpus, fast * output / gpus),
        "tokens_per_user": 1 / median if median > 0 else float("inf"),
        "percentiles": _percentiles(case.question, outcome),
        "meets": probability(rate, {EDGE_Z: slow, SURE_Z: sure, -EDGE_Z: fast}),
        "headroom": _headroom(case, outcome),
        "terms": _terms(case, outcome),
        "outcome": outcome,
    }


def curve(row: Row) -> tuple[tuple[float, float], ...]:
    """(tokens a second of a user, tokens a second and GPU) at parts of the load of a row, and at all of it."""
    one, load = row.pair or row.case, row.rate / row.replicas
    points: list[tuple[float, float]] = []
    for share in PARTS:
        outcome = one.at(share * load)
        median = measured("tpot", 50, outcome.run, outcome.first)
        points += [(1 / median, share * row.tokens_per_gpu)] if median > 0 else []
    return (*points, (row.tokens_per_user, row.tokens_per_gpu))


def _percentiles(question: Question, outcome: Outcome) -> dict[str, float]:
    """By name: the usual ones, and those that the SLA names."""
    usual: list[tuple[Metric, float]] = [(metric, float(place)) for metric in METRICS for place in (50, 90, 99)]
    named: list[tuple[Metric, float]] = [(one.metric, one.percentile) for one in question.sla]
    places = {place: None for place in (*usual, *named)}
    return {f"{name}_p{place:g}": measured(name, place, outcome.run, outcome.first) for name, place in places}


def probability(rate: float, capacities: Mapping[float, float]) -> float:
    """That the SLA holds at a rate, from the most that holds when steps are so many deviations slow.

    Between those the log of the most is taken to be linear, and beyond the last two to go on like between them.
    """
    places = sorted(capacities)
    logs = [-log(max(capacities[z], 1e-9)) for z in places]
    for left in range(len(places) - 1):
        if -log(rate) <= logs[left + 1] or left == len(places) - 2:
            rise = max(logs[left + 1] - logs[left], 1e-6)
            share = (-log(rate) - logs[left]) / rise
            return share_below(places[left] + share * (places[left + 1] - places[left]))
    raise AssertionError("three capacities have two gaps")


def binding(case: Case, outcome: Outcome) -> str:
    """The limit that breaks first if load rises, and what it waits for."""
    if outcome.worst == "queue" or outcome.worst.startswith("ttft"):
        return f"{outcome.worst}: {_waits_for(case, outcome)}"
    run = outcome.run
    busy = run.steps.prefill_tokens > 0
    if outcome.worst.startswith("itl") and busy.mean() > 0.1 and not outcome.worst.startswith("itl_p50"):
        return f"{outcome.worst}: prompts between tokens"
    terms = _terms(case, outcome)
    return f"{outcome.worst}: {max(terms, key=lambda name: terms[name])}"


def _waits_for(case: Case, outcome: Outcome) -> str:
    run, schedule = outcome.run, case.schedule()
    starts = np.concatenate([[0.0], np.cumsum(run.steps.seconds)])
    own = starts[run.first_step] - starts[np.maximum(run.scheduled_step, 0)]
    if float(np.median(own[outcome.first :])) > float(np.median(run.ttft[outcome.first :])) / 2:
        return "prompts are computed"
    if run.pauses or float(run.steps.context.max()) > 0.9 * schedule.kv_tokens:
        return "queue for KV blocks"
    full = float(run.steps.batch.max()) >= schedule.limits.max_num_seqs - 1
    return "queue for seats (max_num_seqs)" if full else "queue for prompts"


def _headroom(case: Case, outcome: Outcome) -> float:
    steps = outcome.run.steps
    held = weighted_percentile(steps.context + steps.prefill_tokens, steps.seconds, 50)
    return max(1 - held / case.schedule().kv_tokens, 0.0)


def _terms(case: Case, outcome: Outcome) -> dict[str, float]:
    """Share by term of the mean step that decodes."""
    steps = outcome.run.steps
    decodes = steps.batch > 0
    if not decodes.any():
        return {"prefill": 1.0}
    batch = float(steps.batch[decodes].mean())
    context = float(steps.context[decodes].sum() / steps.batch[decodes].sum())
    tokens = float(steps.prefill_tokens[decodes].mean())
    pairs = float(steps.prefill_pairs[decodes].sum())
    before = pairs / max(float(steps.prefill_tokens[decodes].sum()), 1.0)
    found = case.priced.steps.terms(tokens, before, batch, context)
    seconds = {name: float(np.asarray(value)) for name, value in found.items()}
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items() if total > 0}
