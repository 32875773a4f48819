"""The scheduler over a model that is a hash: every token is stored once, in order, whatever comes and goes."""

import random
from collections.abc import Sequence as Many

import numpy as np
import pytest

from reforward.domain.errors import BadInput
from reforward.domain.spec import Limits
from reforward.engine.schedule import Plan
from reforward.serve.sampling import Drawing
from reforward.serve.scheduler import NOBODY, SPARE, Scheduler
from reforward.serve.sequence import Piece, Sequence, Wish

LIMITS = Limits(slots=3 + SPARE, length=64, tokens=16, rows=16)
VOCAB = 50


def following(tokens: Many[int]) -> int:
    """What the pretended model says after these tokens."""
    return hash(tuple(tokens)) % VOCAB


class Slots:
    """Plays plans as a worker would, and insists on the contract."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.held = limits, dict[int, list[int]]()

    def play(self, plan: Plan) -> list[int]:
        assert len(plan.tokens) == sum(segment.length for segment in plan.segments) <= self.limits.tokens
        assert len({segment.slot for segment in plan.segments}) == len(plan.segments)
        ends, at = dict[int, int](), 0
        for segment in plan.segments:
            held = [] if segment.start == 0 else self.held[segment.slot]
            assert segment.start == len(held)
            self.held[segment.slot] = held + list(plan.tokens[at : at + segment.length])
            assert len(self.held[segment.slot]) <= self.limits.length
            at += segment.length
            ends[at - 1] = segment.slot
        made = [following(self.held[ends[row]]) for row in plan.rows]
        for _ in range(plan.steps - 1):
            for row in plan.rows:
                self.held[ends[row]].append(made[-len(plan.rows)])
                made.append(following(self.held[ends[row]]))
        return made


def sequence(prompt: int, most: int, client: str = "", **wish: object) -> tuple[Sequence, list[Piece]]:
    pieces: list[Piece] = []
    made = Sequence(
        prompt=tuple(random.Random(prompt * 100 + most).choices(range(VOCAB), k=prompt)),
        wish=Wish(drawing=Drawing(temperature=0), most=most, **wish),
        decode=lambda tokens: "".join(f"<{token}>" for token in tokens),
        deliver=pieces.append,
        client=client,
    )
    return made, pieces


def turn(scheduler: Scheduler, slots: Slots) -> Plan | None:
    scheduler.admit()
    plan = scheduler.plan()
    if plan is None:
        return None
    tokens = slots.play(plan)
    scheduler.accept(plan)
    for place, owner in scheduler.owners(plan):
        if owner.reason is None:
            owner.take(tokens[place], None)
    scheduler.retire()
    return plan


def expected(one: Sequence) -> list[int]:
    made: list[int] = []
    while len(made) < one.wish.most and not (made and made[-1] in one.wish.ends):
        made.append(following([*one.prompt, *made]))
    return made


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_everything_is_produced_once_and_in_order(exact: bool, steps: int) -> None:
    limits = Limits(slots=LIMITS.slots, length=64, tokens=16, rows=16, steps=steps)
    scheduler, slots = Scheduler(limits, chunk=8, exact=exact), Slots(limits)
    every = [sequence(prompt, most) for prompt, most in [(1, 1), (30, 5), (3, 20), (8, 8), (9, 1), (17, 30)]]
    for one, _ in every:
        scheduler.add(one)
    while turn(scheduler, slots):
        pass
    for one, pieces in every:
        assert one.produced == expected(one)
        assert [piece.token for piece in pieces] == one.produced
        assert pieces[-1].reason == "length"
        assert "".join(piece.text for piece in pieces) == "".join(f"<{token}>" for token in one.produced)
    assert scheduler.idle
    assert sorted(scheduler.free) == [0, 1, 2]


def test_random_comings_goings_and_moves() -> None:
    """Cancels, and moves to a fresh worker by storing prompt and produced tokens again, lose and repeat nothing."""
    draw = random.Random(7)
    scheduler, slots, every = Scheduler(LIMITS, chunk=8), Slots(LIMITS), list[tuple[Sequence, list[Piece]]]()
    gone = set[int]()
    for step in range(600):
        if draw.random() < 0.2 and step < 500:
            every.append(sequence(draw.randint(1, 30), draw.randint(1, 30), client=str(draw.randint(0, 2))))
            scheduler.add(every[-1][0])
        if draw.random() < 0.03 and scheduler.running:
            victim = draw.choice(scheduler.running)
            assert scheduler.remove(victim)
            gone.add(victim.number)
        if draw.random() < 0.03:
            moved = scheduler.clear()
            scheduler, slots = Scheduler(LIMITS, chunk=8), Slots(LIMITS)
            for one in reversed(moved):
                scheduler.add(one, first=True)
        turn(scheduler, slots)
    while turn(scheduler, slots):
        pass
    finished = [one for one, _ in every if one.number not in gone]
    assert len(finished) > 50
    assert all(one.produced == expected(one) for one in finished)


def test_decode_goes_on_while_a_long_prompt_is_stored() -> None:
    scheduler, slots = Scheduler(LIMITS, chunk=8), Slots(LIMITS)
    short, pieces = sequence(2, 20)
    scheduler.add(short)
    turn(scheduler, slots)
    scheduler.add(sequence(40, 1)[0])
    for made in range(2, 7):
        plan = turn(scheduler, slots)
        assert plan is not None
        assert len(pieces) == made
        assert len(plan.tokens) == 1 + 8


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    scheduler, slots = Scheduler(LIMITS, chunk=8), Slots(LIMITS)
    long, _ = sequence(60, 1)
    short, pieces = sequence(6, 3)
    scheduler.add(long)
    scheduler.add(short)
    turn(scheduler, slots)
    turn(scheduler, slots)
    assert pieces
    assert long.produced == []


def test_clients_take_turns_at_free_slots() -> None:
    scheduler = Scheduler(LIMITS, chunk=8)
    for _ in range(5):
        scheduler.add(sequence(2, 2, client="many")[0])
    scheduler.add(sequence(2, 2, client="one")[0])
    assert [one.client for one in scheduler.admit()] == ["many", "one", "many"]
    assert scheduler.waiting == 3


def test_an_end_token_ends_and_is_not_told() -> None:
    scheduler, slots = Scheduler(LIMITS, chunk=8), Slots(LIMITS)
    probe, _ = sequence(4, 9)
    third = expected(probe)[2]
    one, pieces = sequence(4, 9, ends=frozenset({third}))
    scheduler.add(one)
    while turn(scheduler, slots):
        pass
    assert one.produced == expected(one)
    assert pieces[-1].reason == "stop"
    assert f"<{third}>" not in pieces[-1].text


def test_exact_calls_do_not_depend_on_neighbours() -> None:
    """The calls that one sequence takes part in have the same shapes and the same place in it, alone and among others."""

    def shapes(others: int) -> list[tuple[object, ...]]:
        scheduler, slots = Scheduler(LIMITS, chunk=8, exact=True), Slots(LIMITS)
        one, _ = sequence(21, 6)
        scheduler.add(one)
        seen: list[tuple[object, ...]] = []
        for _ in range(60):
            if others and scheduler.waiting == 0 and one.stored:
                scheduler.add(sequence(others, 3)[0])
            scheduler.admit()
            slot, plan = one.slot, turn(scheduler, slots)
            mine = [s for s in plan.segments if s.slot == slot and one.number in plan.owners] if plan else []
            if plan and mine:
                seen.append((len(plan.tokens), len(plan.rows), plan.segments.index(mine[0]), mine[0].start))
        assert one.produced == expected(one)
        return seen

    alone = shapes(0)
    assert len(alone) == 6
    assert shapes(5) == alone
    assert shapes(30) == alone


def test_exact_buckets_are_padded_with_slots_that_nobody_needs() -> None:
    scheduler, slots = Scheduler(LIMITS, chunk=8, exact=True), Slots(LIMITS)
    scheduler.add(sequence(2, 9)[0])
    turn(scheduler, slots)
    scheduler.add(sequence(30, 9)[0])
    plans = [plan for plan in (turn(scheduler, slots) for _ in range(4)) if plan]
    buckets = [plan for plan in plans if plan.decode_only]
    assert buckets
    for plan in buckets:
        assert [segment.slot for segment in plan.segments] == [0, 3, 2]
        assert plan.owners.count(NOBODY) == 2


def test_limits_that_do_not_fit() -> None:
    with pytest.raises(BadInput, match="do not fit a call"):
        Scheduler(LIMITS, chunk=14)
    with pytest.raises(BadInput, match="do not fit a call"):
        Scheduler(Limits(slots=SPARE, length=8, tokens=8), chunk=4)


def test_a_wide_row_is_read_for_logprobs_only() -> None:
    row = np.zeros(VOCAB, np.float32)
    one, pieces = sequence(3, 2, logprobs=2)
    assert one.draw(row) == 0
    one.take(0, row)
    assert pieces[0].chosen is not None
    assert len(pieces[0].chosen.top) == 2
