"""The newest requests of a server, in memory: what it is asked now, and how it answers."""

import statistics
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from reforward.domain.call import Call
from reforward.domain.workload import Request

OK = 200


class Window:
    """A sink of a tap. Keeps shapes and times of the last `size` calls that were answered, and nothing of their content."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._calls: deque[Call] = deque(maxlen=size)
        self._lock = threading.Lock()
        self.total = 0
        """Calls since the start."""

    def take(self, calls: Sequence[Call]) -> None:
        """On the tap's thread."""
        with self._lock:
            for call in calls:
                if call.status == OK and call.prompt_tokens and call.output_tokens:
                    self._calls.append(replace(call, prompt=(), answer=()))
                    self.total += 1

    def close(self) -> None:
        """Nothing is held that must be let go of."""

    def keep(self, last: int) -> None:
        """Forget all but the newest: what was asked before a shift."""
        with self._lock:
            for _ in range(len(self._calls) - last):
                self._calls.popleft()

    def requests(self, last: int | None = None) -> tuple[Request, ...]:
        """The newest, or all that are held, in order of arrival, times from the first of them."""
        held = self._held()
        return as_requests(held if last is None else held[-last:])

    def after(self, total: int) -> tuple[Request, ...]:
        """Requests that came after the first `total`, as far as they are still held."""
        with self._lock:
            count = min(self.total - total, len(self._calls))
            return as_requests(list(self._calls)[len(self._calls) - count :])

    def words(self, last: int) -> str:
        """How the newest were answered, for a timeline."""
        calls = self._held()[-last:]
        if not calls:
            return "no request yet"
        firsts = [call.ttft_s for call in calls if call.ttft_s is not None]
        rates = [
            (call.output_tokens - 1) / (call.seconds - call.ttft_s)
            for call in calls
            if call.ttft_s is not None and call.output_tokens > 1 and call.seconds > call.ttft_s
        ]
        ttft = f", TTFT {statistics.median(firsts):.3f} s" if firsts else ""
        rate = f", {statistics.median(rates):.1f} tok/s a request" if rates else ""
        whole = statistics.median(call.seconds for call in calls)
        return f"last {len(calls)} requests (medians): {whole:.2f} s{ttft}{rate}"

    def _held(self) -> list[Call]:
        with self._lock:
            return list(self._calls)


def as_requests(calls: Sequence[Call]) -> tuple[Request, ...]:
    """Shapes of calls, in order of arrival."""
    ordered = sorted(calls, key=lambda call: call.arrived_s)
    return tuple(
        Request(
            arrival_s=call.arrived_s - ordered[0].arrived_s,
            prompt_tokens=call.prompt_tokens,
            output_tokens=call.output_tokens,
            sampling=call.sampling,
        )
        for call in ordered
    )
