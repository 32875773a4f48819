"""Progress on a terminal and without one."""

import io

from rich.console import Console

from app.house import scripted_house
from reforward.app.events import Opened, Paired, Working
from reforward.app.house import House
from reforward.app.told import Told
from reforward.cli import show
from reforward.cli.live import Live
from reforward.engine.scripted import scripted_candidate


def shown(*events, terminal: bool) -> str:
    live = Live()
    live.console = Console(file=io.StringIO(), force_terminal=terminal, width=200, highlight=False)
    live.spinner.live.console = live.console
    with live:
        for event in events:
            live(event)
        live.spinner.refresh()
    return live.console.file.getvalue()


OPENED = Opened(what="tiny: 4 requests; 1 thread, 4k pages", warning="requests are very short")


def test_what_is_measured_is_said_with_and_without_a_terminal():
    for terminal in (True, False):
        text = shown(OPENED, terminal=terminal)
        assert "tiny: 4 requests; 1 thread, 4k pages" in text
        assert "requests are very short" in text


def test_the_spinner_says_for_how_long_and_which_pair():
    text = shown(Working(what="confirming abc"), Paired(done=2, most=16), terminal=True)
    assert "0:00:00" in text
    assert "confirming abc; pair 3 of at most 16" in text
    assert "pair 3" not in shown(Working(what="confirming abc"), Paired(done=2, most=16), terminal=False)


def test_with_json_progress_goes_to_stderr():
    assert Live(as_json=True).console is show.errors
    assert Live().console is show.console


def test_a_session_tells_each_pair_that_goes_on():
    house: House = scripted_house({})
    told: list[Paired] = []
    rule = house.judge(0).stopping(house.contract, "fast")
    stopping = Told(rule, house.contract.pairs_at("fast"), lambda event: told.append(event))
    house.measurer.measure(scripted_candidate("same"), house.loaded.stock, house.workload, "fast", stopping)
    assert [event.done for event in told] == list(range(1, len(told) + 1))
    assert told
    assert {event.most for event in told} == {house.contract.pairs_at("fast")}
