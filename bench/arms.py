"""Decode arms with one face: `go(n)` makes n tokens per sequence and returns seconds by the client's clock."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from reforward.domain.candidate import Candidate
from reforward.domain.ports import Engine, LmWorker
from reforward.domain.spec import Limits, Segment

PROMPT = 64


class DecodeArm(Protocol):
    """Something that decodes when asked and is stopped in between."""

    def go(self, tokens: int) -> float:
        """Decode `tokens` more for each sequence; seconds."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class EngineArm:
    """A candidate in a worker of the persistent engine."""

    def __init__(self, engine: Engine, candidate: Candidate, batch: int, longest: int) -> None:
        assert engine.spec is not None
        self.batch, self.position = batch, PROMPT
        limits = Limits(slots=batch, length=PROMPT + longest, tokens=PROMPT * batch, rows=max(batch, 1))
        self.worker: LmWorker = engine.start_lm(engine.prepare(candidate), depth=engine.spec.layers, limits=limits)
        prompt = [1000 + 37 * i for i in range(PROMPT * batch)]
        segments = [Segment(slot=b, start=0, length=PROMPT) for b in range(batch)]
        rows = [PROMPT * (b + 1) - 1 for b in range(batch)]
        self.last = self.worker.step(prompt, segments, rows, 0)
        self.go(3)
        self.worker.pause()

    def go(self, tokens: int) -> float:
        """One message per token, as in service with sampling on the host."""
        self.worker.resume()
        begun = time.perf_counter()
        for _ in range(tokens):
            segments = [Segment(slot=b, start=self.position, length=1) for b in range(self.batch)]
            self.last = self.worker.step(self.last, segments, list(range(self.batch)), 0)
            self.position += 1
        seconds = time.perf_counter() - begun
        self.worker.pause()
        return seconds

    def close(self) -> None:
        """End the worker."""
        self.worker.close()


class ProcessArm:
    """A script that obeys `go N` on stdin and answers `done`; it blocks on the pipe while others are timed."""

    def __init__(self, script: str, args: Sequence[str]) -> None:
        command = [sys.executable, str(Path(__file__).parent / script), *args]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._expect("ready")

    def go(self, tokens: int) -> float:
        """Seconds between the command and its answer."""
        assert self.process.stdin is not None
        begun = time.perf_counter()
        self.process.stdin.write(f"go {tokens}\n")
        self.process.stdin.flush()
        self._expect("done")
        return time.perf_counter() - begun

    def _expect(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line != word:
            raise RuntimeError(f"{self.process.args!r} answered {line!r} instead of {word!r}")

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
