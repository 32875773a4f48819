"""Whether a candidate's slots can be handed over, as its layout says: tried on the state that a timed pass left behind.

Equal layouts are a promise: that all which a forward knows of a sequence lies in its state, and means there what it means to the
stock. In service another forward goes on with such a slot, and nobody compares. So candidate and stock each take one step on
state of their own, and the other takes the same step on a copy of it. The candidate's is held against the stock's own step too, so
that a state of nothing is not answered with a row of nothing (not where bits count: the stock stores the sequence in other calls
than the pass did). What the stock hands over is a sequence that the candidate has never been sent
(its tokens in a secret order), which it can find nowhere else.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reforward.domain.measurement import Output, Tensor
from reforward.domain.ports import LmWorker
from reforward.domain.spec import Limits, Segment
from reforward.measure.references import Turn, awake


@dataclass(frozen=True, kw_only=True)
class Left:
    """A sequence that a pass left in a slot: everything that is stored, and the token that comes next."""

    slot: int
    stored: tuple[int, ...]
    token: int


def tried(
    name: str, candidate: LmWorker, turn: Turn, left: Left, limits: Limits, draw: random.Random, bits: bool
) -> tuple[Output, ...]:
    """Two steps of each, side by side; none if the layouts differ, which promises nothing. The candidate is paused on entry and
    on return, and stands still while the stock has its turn. `draw` is secret; `bits`: rows are compared bit for bit.
    """
    with turn() as stock:
        alike = (candidate.layout, candidate.memory().state) == (stock.layout, stock.memory().state)
    if not alike:
        return ()
    with awake(candidate):
        held = candidate.save(left.slot)
        own = _step(candidate, left)
    other = replace(left, stored=tuple(draw.sample(left.stored, len(left.stored))))
    with turn() as stock:
        stock.restore(left.slot, held)
        theirs = _step(stock, left)[1]
        _prefill(stock, left, limits)
        known = _step(stock, left)[1]
        _prefill(stock, other, limits)
        held = stock.save(left.slot)
        elsewhere = _step(stock, other)[1]
    with awake(candidate):
        candidate.restore(left.slot, held)
        taken = _step(candidate, other)
    handed = (
        _output(f"{name} handed to the stock", left, own, theirs),
        _output(f"{name} in another order and taken from the stock", other, taken, elsewhere),
    )
    return handed if bits else (*handed, _output(f"{name} stored anew by the stock", left, own, known))


def _step(worker: LmWorker, left: Left) -> tuple[int, Tensor]:
    at = Segment(slot=left.slot, start=len(left.stored), length=1)
    token = worker.step([left.token], (at,), [0], 0)[0]
    return token, worker.rows(0, 1)


def _prefill(worker: LmWorker, left: Left, limits: Limits) -> None:
    for start in range(0, len(left.stored), limits.tokens):
        part: Sequence[int] = left.stored[start : start + limits.tokens]
        worker.step(part, (Segment(slot=left.slot, start=start, length=len(part)),), [], 0)


def _output(name: str, left: Left, ours: tuple[int, Tensor], stock: Tensor) -> Output:
    return Output(name=name, candidate=ours[1], stock=stock, tokens=(ours[0],), positions=(len(left.stored),))
