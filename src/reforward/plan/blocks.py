"""The pool of KV blocks of one rank: first freed, first taken, and what a paused request still finds of its own."""

from collections import deque


class Blocks:
    """Counts of free blocks in the order in which they will be taken.

    vLLM's prefix cache (Kwon et al., SOSP 2023; `v1/core/block_pool.py`) takes blocks that have been free for longest,
    and of one request the last ones first. So a request that was paused and comes back finds a prefix of its blocks.
    """

    def __init__(self, total: int) -> None:
        self.free = total
        self.total = total
        self._queue: deque[list[int]] = deque([[-1, total]])
        self._kept: dict[int, list[int]] = {}

    def take(self, count: int) -> None:
        """Use `count` free blocks; the caller has checked that there are as many."""
        self.free -= count
        while count > 0:
            segment = self._queue[0]
            used = min(count, segment[1])
            segment[1] -= used
            count -= used
            if segment[1] == 0:
                self._queue.popleft()

    def give(self, count: int, owner: int = -1) -> None:
        """Free `count` blocks; `owner` may come back for them, -1 for nobody."""
        if count == 0:
            return
        segment = [owner, count]
        self.free += count
        self._queue.append(segment)
        if owner >= 0:
            self._kept[owner] = segment

    def kept(self, owner: int) -> int:
        """Free blocks that still hold the beginning of `owner`."""
        segment = self._kept.get(owner)
        return segment[1] if segment else 0

    def reclaim(self, owner: int, count: int) -> None:
        """Use `count` of the blocks that `owner` finds, and forget the rest as its own."""
        segment = self._kept.pop(owner, None)
        if segment is not None:
            segment[1] -= count
            self.free -= count
