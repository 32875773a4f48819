"""The tap: bounded, counts what it drops, goes on when a sink cannot write."""

import threading
import time
from collections.abc import Sequence

from reforward.domain.call import Call
from reforward.traffic.tap import Counts, Tap

CALL = Call(arrived_s=1.0, seconds=0.5, prompt_tokens=3, output_tokens=2, prompt=(1, 2, 3))


class Kept:
    """A sink that can be held up, or be without space."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.full, self.closed = False, False
        self.open = threading.Event()
        self.open.set()

    def take(self, calls: Sequence[Call]) -> None:
        self.open.wait()
        if self.full:
            raise OSError(28, "No space left on device")
        self.calls += calls

    def close(self) -> None:
        self.closed = True


def test_calls_reach_the_sink_in_order() -> None:
    sink = Kept()
    tap = Tap([sink])
    calls = [Call(arrived_s=float(i), seconds=0.1, prompt_tokens=1, output_tokens=1) for i in range(1000)]
    for call in calls:
        tap.observe(call)
    assert tap.close() == Counts(offered=1000, kept=1000, dropped_busy=0, dropped_disk=0, unreadable=0)
    assert sink.calls == calls
    assert sink.closed


def test_a_slow_sink_costs_calls_and_never_time() -> None:
    sink = Kept()
    sink.open.clear()
    tap = Tap([sink], most_calls=10)
    for _ in range(100):
        tap.observe(CALL)
    sink.open.set()
    counts = tap.close()
    assert counts.offered == 100
    assert counts.kept == len(sink.calls) == 100 - counts.dropped_busy
    assert counts.dropped_busy >= 89, "ten wait, and one may be in the sink's hands"


def test_waiting_bytes_are_bounded_too() -> None:
    sink = Kept()
    sink.open.clear()
    tap = Tap([sink], most_bytes=100)
    for _ in range(20):
        tap.offer(lambda: CALL, 60)
    sink.open.set()
    assert tap.close().kept <= 2


def test_a_full_disk_is_counted_and_tried_again() -> None:
    sink, other = Kept(), Kept()
    sink.full = True
    tap = Tap([sink, other])
    tap.observe(CALL)
    while not tap.counts().dropped_disk:
        pass
    sink.full = False
    tap.observe(CALL)
    counts = tap.close()
    assert (counts.kept, counts.dropped_disk) == (1, 1)
    assert (len(sink.calls), len(other.calls)) == (1, 2), "one sink's trouble is not the other's"


def test_what_makes_no_sense_is_counted() -> None:
    def broken() -> Call:
        raise ValueError("not JSON")

    tap = Tap([Kept()])
    tap.offer(broken, 1)
    tap.offer(lambda: None, 1)
    assert tap.close().unreadable == 2


def test_a_tap_whose_thread_died_drops_and_counts() -> None:
    tap = Tap([Kept()])
    tap.close()
    tap.observe(CALL)
    assert tap.counts().dropped_busy == 1


def test_sinks_are_woken_when_there_is_no_traffic() -> None:
    class Woken(Kept):
        empty = 0

        def take(self, calls: Sequence[Call]) -> None:
            self.empty += not calls
            super().take(calls)

    sink = Woken()
    tap = Tap([sink], idle_s=0.01)
    until = time.monotonic() + 5
    while not sink.empty and time.monotonic() < until:
        time.sleep(0.01)
    tap.observe(CALL)
    assert tap.close().kept == 1
    assert sink.empty > 0
    assert sink.calls == [CALL]
