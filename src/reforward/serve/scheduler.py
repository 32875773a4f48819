"""Continuous batching for requests whose end nobody knows: sequences in, plans for a worker out, tokens back.

Pure: no clock, no worker, no thread. Decode goes first; prompts are stored in chunks that fill what is left of a call, in equal
shares, so that a long one stalls neither the answers in flight (Agrawal et al., Sarathi-Serve, OSDI 2024) nor short prompts
behind it. Clients with waiting requests take turns at free slots.
"""

from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Iterator
from collections.abc import Sequence as Many
from itertools import pairwise

from reforward.domain.errors import BadInput
from reforward.domain.spec import Limits, Segment
from reforward.engine.schedule import Plan
from reforward.serve.sequence import Sequence

NOBODY = -1
"""Owner of a row that only fills a bucket."""
SPARE = 2
"""Slots that no sequence gets: one fills buckets, one is for looking at an answer again (see `rollout.py`)."""


class Scheduler:
    """Sequences over all slots of one worker but the last `SPARE`.

    `exact`: every call has a shape that its sequence alone decides, so that an answer does not depend on what is served beside
    it: prompts go one chunk of one sequence a call, at multiples of `chunk`, one after the other; a decode call always has one
    token for every slot. `most`: so many sequences are in flight at most, if not one for each slot.
    """

    def __init__(self, limits: Limits, *, chunk: int, exact: bool = False, most: int | None = None) -> None:
        self.slots = limits.slots - SPARE
        if self.slots < 1 or chunk < 1 or self.slots + chunk > limits.tokens:
            raise BadInput(f"{self.slots} slots and a chunk of {chunk} do not fit a call of {limits.tokens} tokens")
        self.limits, self.chunk, self.exact = limits, chunk, exact
        self.queues: OrderedDict[str, deque[Sequence]] = OrderedDict()
        """By client, whose turn it is first."""
        self.running: list[Sequence] = []
        """In the order they got a slot."""
        self.free = list(range(min(self.slots, most or self.slots) - 1, -1, -1))
        self.reserved = 0
        """Free slots that are kept for sequences about to be handed over."""
        self.decoded_last = False

    @property
    def waiting(self) -> int:
        """Sequences without a slot."""
        return sum(map(len, self.queues.values()))

    @property
    def idle(self) -> bool:
        """Nothing to do."""
        return not self.running and not self.queues

    def add(self, sequence: Sequence, *, first: bool = False) -> None:
        """Queue it; `first`: before all others of its client, whose turn is next (it was in flight elsewhere)."""
        queue = self.queues.setdefault(sequence.client, deque())
        if first:
            queue.appendleft(sequence)
            self.queues.move_to_end(sequence.client, last=False)
        else:
            queue.append(sequence)

    def put(self, sequence: Sequence) -> None:
        """Take over a sequence whose state lies in its slot already; that slot must be free."""
        assert sequence.slot is not None
        self.free.remove(sequence.slot)
        self.running.append(sequence)

    def remove(self, sequence: Sequence) -> bool:
        """Forget it wherever it is; False if it is not here. Its slot is free at once: a slot is reset when it is begun."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._release(sequence)
            return True
        queue = self.queues.get(sequence.client)
        if queue is None or sequence not in queue:
            return False
        queue.remove(sequence)
        if not queue:
            del self.queues[sequence.client]
        return True

    def clear(self) -> list[Sequence]:
        """Forget all, those in flight first; returns them, none with a slot."""
        gone = list(self.running)
        for sequence in gone:
            self.remove(sequence)
        return [*gone, *self.clear_waiting()]

    def clear_waiting(self) -> list[Sequence]:
        """Forget those without a slot; returns them."""
        gone = [sequence for queue in self.queues.values() for sequence in queue]
        self.queues.clear()
        return gone

    def admit(self) -> list[Sequence]:
        """Give free slots to clients in turn; returns who got one."""
        admitted: list[Sequence] = []
        while len(self.free) > self.reserved and self.queues and not (self.exact and any(map(_filling, self.running))):
            client, queue = next(iter(self.queues.items()))
            sequence = queue.popleft()
            if queue:
                self.queues.move_to_end(client)
            else:
                del self.queues[client]
            sequence.slot, sequence.stored = self.free.pop(), 0
            self.running.append(sequence)
            admitted.append(sequence)
        return admitted

    def plan(self) -> Plan | None:
        """The next call, or None when nothing is in flight."""
        if not self.running:
            return None
        decoding = [sequence for sequence in self.running if not _filling(sequence)]
        filling = [sequence for sequence in self.running if _filling(sequence)]
        if self.exact:
            return self._exact_plan(decoding, filling)
        if not filling and (steps := self._steps_alone(decoding)) > 1:
            return _plan([(sequence, 1) for sequence in decoding], steps)
        return _plan([*((sequence, 1) for sequence in decoding), *_shares(filling, self.chunk)])

    def accept(self, plan: Plan) -> None:
        """The worker has stored what the plan carried."""
        by_slot = {sequence.slot: sequence for sequence in self.running}
        for segment in plan.segments:
            if segment.slot in by_slot:
                by_slot[segment.slot].stored += segment.length * plan.steps

    def owners(self, plan: Plan) -> Iterator[tuple[int, Sequence]]:
        """(place among the plan's rows, sequence) for every row that belongs to somebody who is still here."""
        by_number = {sequence.number: sequence for sequence in self.running}
        for place, number in enumerate(plan.owners):
            if number in by_number:
                yield place, by_number[number]

    def retire(self) -> list[Sequence]:
        """Free the slots of sequences that have ended; returns these."""
        done = [sequence for sequence in self.running if sequence.reason is not None]
        for sequence in done:
            self.remove(sequence)
        return done

    def _release(self, sequence: Sequence) -> None:
        assert sequence.slot is not None
        self.free.append(sequence.slot)
        self.free.sort(reverse=True)
        sequence.slot, sequence.stored = None, 0

    def _steps_alone(self, decoding: Many[Sequence]) -> int:
        """Greedy steps that need no host: no row is looked at, and none may end by its text or its length before the last."""
        if any(not s.wish.drawing.greedy or s.wish.stops or s.wish.logprobs is not None for s in decoding):
            return 1
        return min(self.limits.steps, *(sequence.left for sequence in decoding))

    def _exact_plan(self, decoding: Many[Sequence], filling: Many[Sequence]) -> Plan:
        """Prompts and decode take turns."""
        if filling and (self.decoded_last or not decoding):
            self.decoded_last = False
            one = filling[0]
            return _plan([(one, min(one.pending, self.chunk - one.stored % self.chunk))])
        self.decoded_last = True
        return self._bucket(decoding, {sequence.slot for sequence in filling})

    def _bucket(self, decoding: Many[Sequence], filling: Container[int | None]) -> Plan:
        """One token for every slot, in their order. A slot that is free is reset; for the one that fills, the spare stands in."""
        by_slot = {sequence.slot: sequence for sequence in decoding}
        tokens, segments, owners = list[int](), list[Segment](), list[int]()
        for slot in range(self.slots):
            sequence = by_slot.get(slot)
            tokens.append(sequence.upcoming(1)[0] if sequence else 0)
            start = sequence.stored if sequence else 0
            segments.append(Segment(slot=self.slots if slot in filling else slot, start=start, length=1))
            owners.append(sequence.number if sequence else NOBODY)
        rows = tuple(range(self.slots))
        return Plan(tokens=tuple(tokens), segments=tuple(segments), rows=rows, owners=tuple(owners), decode_only=True)


def _filling(sequence: Sequence) -> bool:
    """More than its newest token is not stored yet."""
    return sequence.pending > 1 or not sequence.stored


def _shares(filling: Iterable[Sequence], budget: int) -> list[tuple[Sequence, int]]:
    """Tokens of each prompt in one call: equal shares, and what short ones leave goes to the others."""
    shares: list[tuple[Sequence, int]] = []
    ordered = sorted(filling, key=lambda sequence: sequence.pending)
    for place, sequence in enumerate(ordered):
        count = min(sequence.pending, -(-budget // (len(ordered) - place)))
        if count:
            shares.append((sequence, count))
            budget -= count
    return shares


def _plan(shares: Many[tuple[Sequence, int]], steps: int = 1) -> Plan:
    tokens, segments, rows, owners = list[int](), list[Segment](), list[int](), list[int]()
    for sequence, count in shares:
        assert sequence.slot is not None
        tokens += sequence.upcoming(count)
        segments.append(Segment(slot=sequence.slot, start=sequence.stored, length=count))
        if count == sequence.pending:
            rows.append(len(tokens) - 1)
            owners.append(sequence.number)
    assert all(a < b for a, b in pairwise(rows))
    decode_only = all(count == 1 and sequence.stored for sequence, count in shares)
    return Plan(
        tokens=tuple(tokens), segments=tuple(segments), rows=tuple(rows), owners=tuple(owners) * steps,
        decode_only=decode_only, steps=steps,
    )  # fmt: skip
