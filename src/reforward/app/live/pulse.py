"""How a server answers now: the newest calls, for a timeline."""

import statistics
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from reforward.domain.call import Call

OK = 200


class Pulse:
    """A sink of a tap. Keeps times of the last `size` calls that were answered, and nothing of their content."""

    def __init__(self, size: int) -> None:
        self._calls: deque[Call] = deque(maxlen=size)
        self._lock = threading.Lock()

    def take(self, calls: Sequence[Call]) -> None:
        """On the tap's thread."""
        with self._lock:
            self._calls.extend(replace(call, prompt=(), answer=()) for call in calls if call.status == OK)

    def close(self) -> None:
        """Nothing is open."""

    def words(self) -> str:
        """Medians of them."""
        with self._lock:
            calls = list(self._calls)
        if not calls:
            return "no request yet"
        streams = [(call, call.ttft_s) for call in calls if call.ttft_s is not None]
        rates = [
            (call.output_tokens - 1) / (call.seconds - first)
            for call, first in streams
            if call.output_tokens > 1 and call.seconds > first
        ]
        ttft = f", TTFT {statistics.median(first for _, first in streams):.3f} s" if streams else ""
        rate = f", {statistics.median(rates):.1f} tok/s a request" if rates else ""
        whole = statistics.median(call.seconds for call in calls)
        return f"last {len(calls)} requests (medians): {whole:.2f} s{ttft}{rate}"
