"""The sink that a running service learns from: the newest requests, and whether they are still what they were."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from reforward.domain.call import Call
from reforward.domain.workload import Request
from reforward.traffic.blocks import PrefixHasher
from reforward.traffic.drift import IN_A_ROW, WINDOW, Drift, Looked
from reforward.traffic.native import Header
from reforward.traffic.row import Row
from reforward.traffic.shapes import row_of
from reforward.traffic.trace import requests_of

WINDOWS = 8
"""Windows of a reference."""


class Watch:
    """Keeps the shapes of the newest requests in memory, and calls `shifted`, on the tap's thread, when traffic has shifted.

    The first `windows` windows are the reference. After an alarm the three windows that gave it begin the next one. Lengths
    are watched; which prefixes are shared is known of `requests()` only.
    """

    def __init__(
        self, hasher: PrefixHasher, shifted: Callable[[Looked], None], *, window: int = WINDOW, windows: int = WINDOWS
    ) -> None:
        self._hasher, self._shifted, self.window, self._size = hasher, shifted, window, window * windows
        self._rows: deque[Row] = deque(maxlen=self._size)
        self._lock = threading.Lock()
        self._reference: list[Request] = []
        self._drift: Drift | None = None

    def take(self, calls: Sequence[Call]) -> None:
        """Learn from those that were served."""
        rows = [row for row in (row_of(call, 0.0, self._hasher) for call in calls) if not row.failed]
        with self._lock:
            self._rows.extend(rows)
        for row in rows:
            self._see(Request(arrival_s=0.0, prompt_tokens=max(1, row.prompt), output_tokens=row.output))

    def close(self) -> None:
        """Nothing is open."""

    @property
    def ready(self) -> bool:
        """Whether there is a reference, so that shifts can be seen."""
        return self._drift is not None

    def requests(self, count: int | None = None) -> tuple[Request, ...]:
        """The newest, in order of arrival: what to distil from. At most `count`, and as many as a reference has."""
        with self._lock:
            rows = list(self._rows)[-count if count else 0 :]
        return requests_of(rows, Header(block_size=self._hasher.size, block_unit=self._hasher.unit)) if rows else ()

    def _see(self, request: Request) -> None:
        if self._drift is None:
            self._reference.append(request)
            if len(self._reference) == self._size:
                self._drift, self._reference = Drift(self._reference, self.window), []
            return
        self._reference.append(request)
        del self._reference[: -IN_A_ROW * self.window]
        looked = self._drift.see(request)
        if looked and looked.alarms:
            self._drift = None
            self._shifted(looked)
