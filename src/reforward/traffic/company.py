"""How many requests were in service at once."""

import heapq
from collections.abc import Sequence


def in_flight(arrivals: Sequence[float], busy: Sequence[float]) -> list[int]:
    """For each arrival, in order of time: requests in service then, itself included. Both in seconds."""
    ends: list[float] = []
    found: list[int] = []
    for arrival, seconds in zip(arrivals, busy, strict=True):
        while ends and ends[0] <= arrival:
            heapq.heappop(ends)
        heapq.heappush(ends, arrival + seconds)
        found.append(len(ends))
    return found
