"""The thread that drives all workers: one call of each lane in turn, so that every call has the machine to itself.

It owns lanes and sequences; others hand it functions to run between two calls, which is the step boundary that swaps need.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from reforward.domain.errors import CandidateFailed, EngineLost, ReforwardError
from reforward.serve.lane import Lane
from reforward.serve.rollout import Trial
from reforward.serve.sequence import Sequence

MOST_FALLS = 6
"""Workers that may die under one sequence without giving it a token; then it is taken for the cause."""
KILLED = 0.2
"""What a kill from outside, or the loss of the engine, counts for: it says little about a request."""
OVER = "the server is about to end; start it again"
Role = Literal["main", "canary", "stock", "old"]
T = TypeVar("T")


class Lost(Exception):
    """A lane's worker is gone."""

    def __init__(self, lane: Lane, error: ReforwardError) -> None:
        super().__init__(str(error))
        self.lane, self.error = lane, error


class Driver:
    """Lanes by role: `main` serves; `canary` is tried beside it; `stock` takes what lies outside main's validity; `old` was
    main before and stays warm.

    `lost(lane, role, error)` and `need_stock()` are called on this thread and must not block.
    """

    def __init__(
        self, *, lost: Callable[[Lane, Role, ReforwardError], None], need_stock: Callable[[], None],
        ended: Callable[[Sequence], None],
    ) -> None:  # fmt: skip
        self.lost, self.need_stock, self.ended = lost, need_stock, ended
        self.lanes: dict[Role, Lane] = {}
        self.homeless: deque[Sequence] = deque()
        """Sequences that no lane of the moment can serve."""
        self.trial: Trial | None = None
        self.resumed = self.handed = 0
        """Sequences begun anew on another worker, and slots handed over, since the start."""
        self.inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="driver", daemon=True)
        self.died: BaseException | None = None
        """An error of our own that ended the thread."""
        self._asked: set[Future[Any]] = set()
        self._lock, self._over = threading.Lock(), False

    # --- from any thread ---

    def start(self) -> None:
        """Begin to drive."""
        self.thread.start()

    def stop(self) -> None:
        """End after the call of the moment and what was handed in by then. Sequences are left as they are."""
        self.inbox.put(None)
        if self.thread.is_alive():
            self.thread.join()

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Run it between two calls; the future holds what it returns or raises."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except ReforwardError as error:
                future.set_exception(error)
            except BaseException as error:
                future.set_exception(error)
                raise

        with self._lock:
            if self._over or not self.thread.is_alive():
                raise EngineLost(OVER)
            self._asked = {one for one in self._asked if not one.done()} | {future}
            self.inbox.put(run)
        return future

    def submit(self, sequence: Sequence) -> None:
        """Serve it."""
        self.inbox.put(lambda: self._begin(sequence))

    def cancel(self, sequence: Sequence) -> None:
        """Forget it, wherever it is."""
        self.inbox.put(lambda: self._cancel(sequence))

    # --- between two calls ---

    def install(self, role: Role, lane: Lane) -> None:
        """Give a lane a role that nobody has, and let it serve who waited for it."""
        assert role not in self.lanes
        self.lanes[role] = lane
        self._house_the_homeless()

    def switch(self, new: Lane) -> Lane | None:
        """`new` is main from now on, with all that the old main had in flight; returns a lane that is of no more use.

        What can be handed over is handed over with its state, one sequence a round, so that nobody waits for all of them.
        Otherwise the old lane drains, or its sequences are begun anew, whichever is sooner. It stays as `old`, where only one
        may be.
        """
        while self._hand_over():  # what the swap before this one has left
            continue
        for role in self._roles_of(new):
            del self.lanes[role]
        before, dropped = self.lanes.pop("main", None), self.lanes.pop("old", None)
        self.lanes["main"] = new
        if dropped is not None:
            self._begin_anew(dropped)
        if before is not None:
            self.lanes["old"] = before
            self._move(before, new)
        self._house_the_homeless()
        return dropped

    def remove(self, role: Role) -> Lane | None:
        """Take a lane out of service; its sequences go on elsewhere."""
        lane = self.lanes.pop(role, None)
        if lane is not None:
            self._begin_anew(lane)
        return lane

    def fail_homeless(self, reason: str) -> None:
        """No worker can be started."""
        while self.homeless:
            self._end(self.homeless.popleft(), reason)

    # --- the thread ---

    def _run(self) -> None:
        try:
            self._drive()
        except BaseException as error:
            self.died = error
            raise
        finally:
            with self._lock:
                self._over = True
            for future in self._asked:
                if not future.done():
                    future.set_exception(EngineLost(OVER))

    def _drive(self) -> None:
        while True:
            try:
                task = self.inbox.get_nowait() if self._busy else self.inbox.get()
            except queue.Empty:
                self._round()
                continue
            if task is None:
                return
            task()

    @property
    def _busy(self) -> bool:
        looking = self.trial is not None and self.trial.looking
        return looking or any(not lane.scheduler.idle for lane in self.lanes.values())

    def _round(self) -> None:
        """One call of every lane that has work."""
        self._hand_over()
        for lane in list(self.lanes.values()):
            try:
                if not lane.scheduler.idle:
                    self._turn(lane)
            except Lost as loss:
                self._fell(loss.lane, loss.error)
        if self.trial is not None and (main := self.lanes.get("main")):
            try:
                with self._blamed(main):
                    self.trial.look(main)
            except Lost as loss:
                self._fell(loss.lane, loss.error)

    def _turn(self, lane: Lane) -> None:
        with self._blamed(lane):
            done = lane.turn()
        for sequence in done:
            self._done(sequence)
        for sequence in [one for one in lane.scheduler.running if not lane.fits(one)]:
            self._leave(lane, sequence)

    def _begin(self, sequence: Sequence) -> None:
        if self.trial is not None and "canary" in self.lanes:
            fits = all(self.lanes[role].fits(sequence) for role in ("main", "canary") if role in self.lanes)
            twin = self.trial.assign(sequence) if fits else None
            if twin is not None:
                self._route(twin)
        self._route(sequence)

    def _route(self, sequence: Sequence, *, first: bool = False) -> None:
        """To the lane that should serve it; it waits if there is none yet."""
        lane = self._lane_for(sequence)
        if lane is not None:
            lane.scheduler.add(sequence, first=first)
        elif first:
            self.homeless.appendleft(sequence)
        else:
            self.homeless.append(sequence)

    def _lane_for(self, sequence: Sequence) -> Lane | None:
        canary, main = self.lanes.get("canary"), self.lanes.get("main")
        if sequence.notes and sequence.notes.arm == "canary" and canary is not None and canary.fits(sequence):
            return canary
        if main is None:
            return None
        if main.fits(sequence):
            return main
        if "stock" not in self.lanes:
            self.need_stock()
        return self.lanes.get("stock")

    def _house_the_homeless(self) -> None:
        waiting, self.homeless = self.homeless, deque()
        for sequence in waiting:
            self._route(sequence)

    def _move(self, source: Lane, to: Lane) -> None:
        """The first of `source` that can be handed over, and anew what begins sooner so; the rest is handed over or drains."""
        try:
            self._hand_one(source, to)
        except Lost as loss:
            if loss.lane is to:  # it never served, and the old main is as it was
                self.lanes["main"] = self.lanes.pop("old")
            self._fell(loss.lane, loss.error)
        for sequence in list(source.scheduler.running):
            stays = source is self.lanes.get("main") or _takes_over(sequence, source, to)
            if sequence.reason is None and not stays and _begins_sooner(sequence, source, to):
                self._anew(sequence, source)
        for sequence in source.scheduler.clear_waiting():
            self._route(sequence)

    def _hand_over(self) -> bool:
        """One more sequence of the old main to the new; False if there was none."""
        old, main = self.lanes.get("old"), self.lanes.get("main")
        if main is None:
            return False
        main.scheduler.reserved = 0
        try:
            return old is not None and self._hand_one(old, main)
        except Lost as loss:
            self._fell(loss.lane, loss.error)
            return False

    def _hand_one(self, source: Lane, to: Lane) -> bool:
        """The slots of those that will follow are kept for them."""
        leaving = [one for one in source.scheduler.running if _takes_over(one, source, to)]
        to.scheduler.reserved = max(0, len(leaving) - 1)
        return bool(leaving) and self._hand(leaving[0], source, to)

    def _hand(self, sequence: Sequence, source: Lane, to: Lane) -> bool:
        """A sequence with the state of its slot; False if these two cannot."""
        if not to.scheduler.free or sequence.slot is None or not _takes_over(sequence, source, to):
            return False
        with self._blamed(source):
            held = source.worker.save(sequence.slot)
        slot = sequence.slot if sequence.slot in to.scheduler.free else to.scheduler.free[-1]
        with self._blamed(to):
            to.worker.restore(slot, held)
        stored = sequence.stored
        source.scheduler.remove(sequence)
        sequence.slot, sequence.stored = slot, stored
        to.scheduler.put(sequence)
        self.handed += 1
        return True

    def _leave(self, lane: Lane, sequence: Sequence) -> None:
        """It has grown beyond what the lane's candidate was judged at."""
        stock = self.lanes.get("stock")
        if stock is None or stock is lane or not self._hand(sequence, lane, stock):
            self._anew(sequence, lane)

    def _anew(self, sequence: Sequence, source: Lane) -> None:
        source.scheduler.remove(sequence)
        sequence.moves += 1
        self.resumed += 1
        self._route(sequence, first=True)

    def _begin_anew(self, lane: Lane) -> None:
        for sequence in reversed(lane.scheduler.clear()):
            sequence.moves += 1
            self.resumed += 1
            self._route(sequence, first=True)

    def _fell(self, lane: Lane, error: ReforwardError) -> None:
        """Its worker is gone: its sequences go on elsewhere, with what they have produced."""
        roles = self._roles_of(lane)
        under, weight = set(lane.scheduler.running), KILLED if _from_outside(error) else 1.0
        gone = lane.scheduler.clear()
        for role in roles:
            del self.lanes[role]
        if "main" in roles and "stock" in self.lanes:
            self.lanes["main"] = self.lanes.pop("stock")
        for sequence in reversed(gone):
            sequence.falls += weight if sequence in under else 0.0
            sequence.moves += 1
            self.resumed += 1
            if sequence.falls >= MOST_FALLS:
                self._end(sequence, f"worker after worker died under this request: {error}")
            else:
                self._route(sequence, first=True)
        for role in roles:
            self.lost(lane, role, error)

    def _roles_of(self, lane: Lane) -> list[Role]:
        return [role for role, known in self.lanes.items() if known is lane]

    def _cancel(self, sequence: Sequence) -> None:
        for lane in self.lanes.values():
            lane.scheduler.remove(sequence)
        if sequence in self.homeless:
            self.homeless.remove(sequence)
        sequence.end("abort")
        self._done(sequence)

    def _end(self, sequence: Sequence, reason: str) -> None:
        sequence.end("error", error=reason)
        self._done(sequence)

    def _done(self, sequence: Sequence) -> None:
        if self.trial is not None:
            self.trial.ended(sequence)
        self.ended(sequence)

    @contextmanager
    def _blamed(self, lane: Lane) -> Generator[None]:
        try:
            yield
        except (CandidateFailed, EngineLost) as error:
            raise Lost(lane, error) from None


def _from_outside(error: ReforwardError) -> bool:
    return isinstance(error, EngineLost) or "SIGKILL" in str(error)


def _takes_over(sequence: Sequence, source: Lane, to: Lane) -> bool:
    """`to` can go on with the state that `source` holds for it."""
    alike = (source.worker.layout, source.state_bytes) == (to.worker.layout, to.state_bytes)
    return alike and to.fits(sequence)


def _begins_sooner(sequence: Sequence, source: Lane, to: Lane) -> bool:
    """Storing what it holds again in `to` takes less time than all that `source` may have left to do for it."""
    drain = sequence.left * (source.pace.decode_s + to.pace.decode_s)
    return sequence.stored * to.pace.token_s <= drain
