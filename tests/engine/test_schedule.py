"""The scheduler: what is planned, in which order, and that every token is stored exactly once."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reforward.domain.errors import BadInput
from reforward.domain.spec import Limits
from reforward.engine.schedule import Plan, Scheduler, Script


def play(scripts: list[Script], limits: Limits, answer: int = 0) -> tuple[list[Plan], dict[int, list[int]]]:
    """Run to the end; stored tokens by request, checking positions on the way."""
    scheduler, plans, owner = Scheduler(limits), list[Plan](), dict[int, int]()
    for script in scripts:
        scheduler.submit(script)
    stored: dict[int, list[int]] = {request: [] for request in range(len(scripts))}
    scheduler.admit()
    while (plan := scheduler.plan()) is not None:
        owner = {sequence.slot: sequence.request for sequence in scheduler.running}
        at = 0
        for segment in plan.segments:
            request = owner[segment.slot]
            assert segment.start == len(stored[request])
            stored[request] += plan.tokens[at : at + segment.length]
            stored[request] += [answer + len(plans) + 1] * (plan.steps - 1)
            at += segment.length
        assert at == len(plan.tokens) <= limits.tokens
        assert list(plan.rows) == sorted(set(plan.rows))
        plans.append(plan)
        scheduler.accept(plan, [answer + len(plans)] * len(plan.owners))
        scheduler.admit()
    return plans, stored


def test_one_request_is_prefilled_in_chunks_and_decoded() -> None:
    plans, stored = play([Script(prompt=tuple(range(10)), outputs=3)], Limits(slots=1, length=16, tokens=4))
    assert [len(plan.tokens) for plan in plans] == [4, 4, 2, 1, 1]
    assert [plan.rows for plan in plans] == [(), (), (1,), (0,), (0,)]
    assert [plan.decode_only for plan in plans] == [False, False, False, True, True]
    assert stored[0] == [*range(10), 3, 4]


def test_fed_tokens_replace_produced_ones() -> None:
    _, stored = play([Script(prompt=(1, 2), outputs=3, feed=(7, 8, 9))], Limits(slots=1, length=8, tokens=8), answer=50)
    assert stored[0] == [1, 2, 7, 8]


def test_decoding_goes_before_prefill_and_slots_are_reused() -> None:
    scripts = [
        Script(prompt=(1,), outputs=4),
        Script(prompt=tuple(range(9)), outputs=1),
        Script(prompt=(5,), outputs=1),
    ]
    plans, _ = play(scripts, Limits(slots=2, length=16, tokens=4))
    assert [[segment.length for segment in plan.segments] for plan in plans[:4]] == [[1, 3], [1, 3], [1, 3], [1, 1]]
    assert [plan.owners for plan in plans] == [(0,), (0,), (0, 1), (0, 2)]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 8)), min_size=1, max_size=7),
    slots=st.integers(1, 4),
    tokens=st.integers(4, 24),
    steps=st.integers(1, 5),
)
def test_every_token_is_stored_once_and_every_output_delivered(
    lengths: list[tuple[int, int]], slots: int, tokens: int, steps: int
) -> None:
    draw = random.Random(0)
    scripts = [Script(prompt=tuple(draw.randrange(99) for _ in range(p)), outputs=o) for p, o in lengths]
    plans, stored = play(scripts, Limits(slots=slots, length=64, tokens=tokens, steps=steps))
    for request, script in enumerate(scripts):
        assert stored[request][: len(script.prompt)] == list(script.prompt)
        assert len(stored[request]) == len(script.prompt) + script.outputs - 1
        assert sum(plan.owners.count(request) for plan in plans) == script.outputs


def test_free_decoding_is_planned_in_runs_that_end_with_the_shortest_request() -> None:
    scripts = [Script(prompt=(1,), outputs=9), Script(prompt=(2,), outputs=3)]
    plans, _ = play(scripts, Limits(slots=2, length=16, tokens=4, steps=4))
    assert [plan.steps for plan in plans] == [1, 2, 4, 2]
    assert plans[1].owners == (0, 1, 0, 1)
    fed = [Script(prompt=(1,), outputs=5, feed=(1, 2, 3, 4))]
    assert {plan.steps for plan in play(fed, Limits(slots=1, length=16, tokens=4, steps=4))[0]} == {1}


def test_what_cannot_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="do not fit"):
        Scheduler(Limits(slots=1, length=8, tokens=8)).submit(Script(prompt=(1,) * 8, outputs=1))
    with pytest.raises(BadInput, match="slots need"):
        Scheduler(Limits(slots=4, length=8, tokens=2))
    with pytest.raises(BadInput, match="fed tokens"):
        Script(prompt=(1,), outputs=4, feed=(1,))
    scheduler = Scheduler(Limits(slots=1, length=8, tokens=8))
    scheduler.submit(Script(prompt=(1,), outputs=1))
    scheduler.admit()
    plan = scheduler.plan()
    assert plan is not None
    with pytest.raises(BadInput, match="answered with 2"):
        scheduler.accept(plan, [1, 2])
