"""One pass of one worker over a list of scripts, timed by the client."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reforward.domain.ports import LmWorker
from reforward.domain.spec import Limits
from reforward.engine.schedule import Plan, Scheduler, Script, play

Clock = Callable[[], int]
"""Nanoseconds from any origin, never going back."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One produced token: which request, which of its outputs, what the worker said, where its logits lie."""

    request: int
    output: int
    token: int
    place: int
    """Row of the outbox."""


@dataclass(kw_only=True)
class Timing:
    """What the clock saw. Rows are read only while it stands."""

    busy_ns: int = 0
    decode_ns: int = 0
    decode_tokens: int = 0
    ttft_ns: dict[int, int] = field(default_factory=dict[int, int])
    produced: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    held: dict[int, int] = field(default_factory=dict[int, int])
    """The request that each slot held last."""


Harvest = Callable[[Sequence[Row]], None]
"""Called with the worker paused; must read what it wants from the outbox before it returns."""


def ignore(rows: Sequence[Row]) -> None:
    """A harvest that wants nothing."""


def replay(
    worker: LmWorker,
    scripts: Sequence[Script],
    limits: Limits,
    clock: Clock,
    harvest: Harvest,
    arrived: Harvest = ignore,
) -> Timing:
    """Play all scripts in a closed loop of `limits.slots` requests in flight.

    The worker is running on entry and paused on return. Whenever the outbox is full, the worker is paused, the clock stops,
    rows are harvested, and both go on: a worker cannot mend a row after the clock has stopped, nor run ahead before it
    stands. `arrived` is called with the rows of each answer as it comes in, under the clock, so that what was answered too
    early can be seen.
    """
    scheduler = Scheduler(limits)
    for script in scripts:
        scheduler.submit(script)
    timing, rows, since = Timing(), list[Row](), dict[int, int]()
    timing.produced = {request: [] for request in range(len(scripts))}
    begun = clock()
    _admit(scheduler, since, timing, begun, begun)
    while (plan := scheduler.plan()) is not None:
        if len(rows) + len(plan.owners) > limits.rows:
            worker.pause()
            timing.busy_ns += clock() - begun
            _harvest(rows, harvest)
            worker.resume()
            begun = clock()
        sent = clock()
        tokens = play(worker, plan, len(rows))
        now = clock()
        _note(timing, plan, tokens, rows, now - sent)
        arrived(rows[len(rows) - len(plan.owners) :])
        for request in plan.owners:
            timing.ttft_ns.setdefault(request, timing.busy_ns + now - begun - since[request])
        if scheduler.accept(plan, tokens):
            _admit(scheduler, since, timing, begun, now)
    timing.busy_ns += clock() - begun
    worker.pause()
    _harvest(rows, harvest)
    return timing


def _admit(scheduler: Scheduler, since: dict[int, int], timing: Timing, begun: int, now: int) -> None:
    for request in scheduler.admit():
        since[request] = timing.busy_ns + now - begun
    timing.held |= {sequence.slot: sequence.request for sequence in scheduler.running}


def _note(timing: Timing, plan: Plan, tokens: Sequence[int], rows: list[Row], spent_ns: int) -> None:
    if plan.decode_only:
        timing.decode_ns += spent_ns
        timing.decode_tokens += len(plan.owners)
    for request, token in zip(plan.owners, tokens, strict=True):
        made = timing.produced[request]
        rows.append(Row(request=request, output=len(made), token=token, place=len(rows)))
        made.append(token)


def _harvest(rows: list[Row], harvest: Harvest) -> None:
    harvest(rows)
    rows.clear()
