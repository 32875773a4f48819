"""Where a front leaves what it served: bounded, droppable, never in the way of a request."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from reforward.domain.call import Call

MOST_CALLS = 4096
MOST_BYTES = 64 << 20
"""Calls, and bytes of their prompts and answers, that may wait; what comes on top is dropped and counted."""
BATCH = 256
IDLE_S = 30.0
"""A tap without calls passes on an empty batch this often, so that sinks can look after what they keep."""


class Sink(Protocol):
    """What happens to calls, on the tap's own thread."""

    def take(self, calls: Sequence[Call]) -> None:
        """`OSError` means that none of these calls was kept; later ones are tried again. Empty after a while of nothing."""
        ...

    def close(self) -> None:
        """No more calls come."""
        ...


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of calls since the tap was opened."""

    offered: int
    kept: int
    """Taken by every sink."""
    dropped_busy: int
    """The queue was full, or the tap's thread is gone."""
    dropped_disk: int
    """A sink could not write: no space, no rights."""
    unreadable: int
    """Could not be made sense of, such as bodies that are not JSON."""


class Tap:
    """`observe` costs a front some microseconds and never raises or waits; everything else happens on a thread of the tap."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        most_calls: int = MOST_CALLS,
        most_bytes: int = MOST_BYTES,
        idle_s: float = IDLE_S,
    ) -> None:
        self._sinks, self._most_calls, self._most_bytes, self._idle_s = tuple(sinks), most_calls, most_bytes, idle_s
        self._waiting: queue.SimpleQueue[tuple[Callable[[], Call | None], int] | None] = queue.SimpleQueue()
        self._offered = self._busy = self._bytes_in = 0
        self._kept = self._disk = self._unreadable = self._bytes_out = 0
        self._thread = threading.Thread(target=self._run, name="tap", daemon=True)
        self._thread.start()

    def observe(self, call: Call) -> None:
        """A call has ended. Called by one thread at a time."""
        self.offer(lambda: call, 4 * (len(call.prompt) + len(call.answer)))

    def offer(self, make: Callable[[], Call | None], size: int) -> None:
        """The same for a call that is put together later, from `size` bytes: None or `ValueError` if it cannot be."""
        self._offered += 1
        full = self._waiting.qsize() >= self._most_calls or self._bytes_in - self._bytes_out + size > self._most_bytes
        if full or not self._thread.is_alive():
            self._busy += 1
            return
        self._bytes_in += size
        self._waiting.put((make, size))

    def counts(self) -> Counts:
        """Numbers for metrics."""
        return Counts(
            offered=self._offered,
            kept=self._kept,
            dropped_busy=self._busy,
            dropped_disk=self._disk,
            unreadable=self._unreadable,
        )

    def close(self, within_s: float = 5.0) -> Counts:
        """Let the sinks finish what waits, at most `within_s` seconds."""
        self._waiting.put(None)
        self._thread.join(within_s)
        return self.counts()

    def _run(self) -> None:
        try:
            while self._batch():
                pass
        finally:
            for sink in self._sinks:
                sink.close()

    def _batch(self) -> bool:
        """Wait for calls and pass on those that are there; False when the tap is closed."""
        calls: list[Call] = []
        try:
            item = self._waiting.get(timeout=self._idle_s)
        except queue.Empty:
            self._pass_on(())
            return True
        while item is not None:
            self._make(*item, calls)
            if len(calls) >= BATCH or self._waiting.empty():
                break
            item = self._waiting.get()
        if calls:
            self._pass_on(calls)
        return item is not None

    def _make(self, make: Callable[[], Call | None], size: int, calls: list[Call]) -> None:
        try:
            call = make()
        except ValueError:
            call = None
        self._bytes_out += size
        if call is None:
            self._unreadable += 1
        else:
            calls.append(call)

    def _pass_on(self, calls: Sequence[Call]) -> None:
        lost = False
        for sink in self._sinks:
            try:
                sink.take(calls)
            except OSError:
                lost = True
        self._disk += len(calls) * lost
        self._kept += len(calls) * (not lost)
