"""Pieces of `up`: how a server answers, what a winner is judged on, what is refused."""

import pytest

from reforward.app.live.pulse import Pulse
from reforward.app.live.up import Habits, with_longest
from reforward.domain.call import Call
from reforward.domain.errors import BadInput
from reforward.domain.workload import Request, Workload


def test_a_pulse_tells_how_the_newest_calls_were_answered_and_holds_no_content() -> None:
    pulse = Pulse(3)
    assert pulse.words() == "no request yet"
    pulse.take(
        [
            Call(arrived_s=5.0, seconds=2.0, ttft_s=1.0, prompt_tokens=7, output_tokens=5, prompt=(1, 2), answer=(3,)),
            Call(arrived_s=6.0, seconds=1.0, prompt_tokens=8, output_tokens=0, status=500),
        ]
    )
    assert pulse.words() == "last 1 requests (medians): 2.00 s, TTFT 1.000 s, 4.0 tok/s a request"
    assert not any(call.prompt or call.answer for call in pulse._calls)
    pulse.take([Call(arrived_s=7.0 + i, seconds=3.0, prompt_tokens=1, output_tokens=1) for i in range(5)])
    assert pulse.words() == "last 3 requests (medians): 3.00 s"


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
    with pytest.raises(BadInput, match="at least 4"):
        Habits(windows=2)
