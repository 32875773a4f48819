"""Builds beside the engine: a tree whose job waits is built meanwhile, so that no engine time goes into compilers."""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed, EngineLost
from reforward.domain.ports import Engine
from reforward.engine.builds import BUILD_FILE

END_S = 30.0
"""Patience with the last build."""


class Builder:
    """One thread that builds, on a machine with a core that no worker uses; elsewhere it takes nothing.

    A build that fails here fails again in its session, which is where that is recorded.
    """

    def __init__(self, engine: Engine, done: Callable[[], None]) -> None:
        self.engine, self.done = engine, done
        self.spare = engine.target.machine.cores > engine.target.launch.threads
        self.seconds = 0.0
        self._wanted: deque[Candidate] = deque()
        self._unbuilt: set[str] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="builder", daemon=True)
        if self.spare:
            self._thread.start()

    def want(self, candidate: Candidate) -> None:
        """Build this tree when those before it are built."""
        if not self.spare or candidate.text_of(BUILD_FILE) is None:
            return
        with self._changed:
            self._wanted.append(candidate)
            self._unbuilt.add(candidate.id)
            self._changed.notify()

    def unbuilt(self, candidate: str) -> bool:
        """It waits for its build, or is being built."""
        return candidate in self._unbuilt

    def close(self) -> None:
        """Begin no other build; one that takes long is ended with its engine."""
        with self._changed:
            self._closed = True
            self._unbuilt.clear()
            self._changed.notify()
        if self.spare:
            self._thread.join(timeout=END_S)

    def _run(self) -> None:
        while (candidate := self._next()) is not None:
            begun = time.monotonic()
            try:
                with suppress(CandidateFailed, EngineLost, OSError):
                    self.engine.build(candidate)
            finally:
                self.seconds += time.monotonic() - begun
                self._unbuilt.discard(candidate.id)
                self.done()

    def _next(self) -> Candidate | None:
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._closed)
            return None if self._closed else self._wanted.popleft()
