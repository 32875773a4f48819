"""Pieces of `up`: what a server remembers of its traffic, when that has shifted, what is tried first."""

import random

import pytest

from reforward.app.up import Habits, Shifts, with_longest
from reforward.app.window import Window
from reforward.domain.call import Call
from reforward.domain.errors import BadInput
from reforward.domain.workload import Request, Workload

SIZE = 200


def calls(count: int, draw: random.Random, *, code: float = 0.0, start: float = 0.0) -> list[Call]:
    """Chats, of which a share comes from a client that completes code: long prompts, short answers."""
    made: list[Call] = []
    for index in range(count):
        coded = draw.random() < code
        prompt = int(draw.lognormvariate(7.5, 0.4)) if coded else int(draw.lognormvariate(5.0, 0.8))
        output = int(draw.lognormvariate(2.5, 0.4)) if coded else int(draw.lognormvariate(4.5, 0.6))
        made.append(
            Call(
                arrived_s=start + index,
                seconds=2.0,
                ttft_s=0.5,
                prompt_tokens=max(1, prompt),
                output_tokens=max(2, output),
            )
        )
    return made


def test_a_window_holds_shapes_of_what_was_answered_and_no_content() -> None:
    window = Window(3)
    window.take(
        [
            Call(arrived_s=5.0, seconds=2.0, ttft_s=1.0, prompt_tokens=7, output_tokens=5, prompt=(1, 2), answer=(3,)),
            Call(arrived_s=4.0, seconds=1.0, prompt_tokens=9, output_tokens=1),
            Call(arrived_s=6.0, seconds=1.0, prompt_tokens=8, output_tokens=0, status=500),
        ]
    )
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in window.requests()] == [(0.0, 9, 1), (1.0, 7, 5)]
    assert window.total == 2
    assert "TTFT 1.000 s, 4.0 tok/s a request" in window.words(2)
    assert not any(call.prompt or call.answer for call in window._held())
    window.take([Call(arrived_s=7.0 + i, seconds=1.0, prompt_tokens=1, output_tokens=1) for i in range(5)])
    assert [r.arrival_s for r in window.requests()] == [0.0, 1.0, 2.0], "only the newest three"
    assert len(window.after(5)) == 2
    window.keep(1)
    assert len(window.requests()) == 1


def test_unchanged_traffic_is_no_shift_and_a_client_that_joins_is_one() -> None:
    draw, window = random.Random(0), Window(4 * SIZE)
    shifts = Shifts(window, SIZE)
    window.take(calls(4 * SIZE, draw))
    assert shifts.look() is None
    for part in range(5):
        window.take(calls(SIZE, draw, start=1000.0 * (part + 1)))
        assert shifts.look() is None
    told = None
    for part in range(6):
        window.take(calls(SIZE, draw, code=0.5, start=1000.0 * (part + 10)))
        told = told or shifts.look()
    assert told is not None
    assert "prompt" in told
    assert shifts.look() is None, "told once"


def test_the_longest_request_is_among_what_a_winner_is_judged_on() -> None:
    window = tuple(Request(arrival_s=i, prompt_tokens=p, output_tokens=4) for i, p in enumerate((8, 900, 16)))
    short = Workload(name="w", source="s", requests=window[:1], weights=(3.0,))
    longer = with_longest(short, window)
    assert longer.longest == 904
    assert longer.weights == (3.0, 1.0)
    assert with_longest(longer, window) == longer


def test_windows_that_are_too_small_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 200"):
        Habits(window=50)
