"""What the outputs should have been: the stock forward in workers of its own, trusted and kept between sessions."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np
from numpy.typing import NDArray

from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed, EngineLost
from reforward.domain.measurement import Tensor
from reforward.domain.ports import Engine, LmWorker, ModuleWorker, Prepared
from reforward.domain.spec import Limits, Segment
from reforward.domain.subject import Tier
from reforward.engine.schedule import Script
from reforward.measure.arrays import rows_of
from reforward.measure.replay import Row, replay

CHUNK = 256
"""Tokens of one teacher-forcing call."""
ROWS = 32
"""Rows that a reference worker's outbox holds."""

ReferenceHarvest = Callable[[LmWorker, Sequence[Row]], None]
Turn = Callable[[], AbstractContextManager[LmWorker]]
"""Wakes a worker of the stock for a while."""


class References:
    """Owns one yardstick (native precision) and one oracle (float64) worker per depth, started when first needed; those of
    one depth at a time. They are paused except while they answer, so that they slow neither arm. If one fails, the engine is broken
    (`EngineLost`): the stock forward is nobody's candidate. All are started afresh after that.
    """

    def __init__(self, engine: Engine, stock: Candidate) -> None:
        self.engine, self.stock = engine, stock
        self._prepared: Prepared | None = None
        self._teachers: dict[tuple[int, bool], tuple[Limits, LmWorker]] = {}
        self._module: ModuleWorker | None = None

    def teach(self, depth: int, tokens: Sequence[int], wanted: Sequence[int], *, oracle: bool) -> NDArray[np.float32]:
        """Logits rows `[len(wanted), vocab]` at the ascending positions `wanted` of one sequence."""
        held = bool(self._teachers)
        try:
            return self._teach(depth, tokens, wanted, oracle=oracle)
        except EngineLost:
            if not held:
                raise
        return self._teach(
            depth, tokens, wanted, oracle=oracle
        )  # they went with an engine that has started afresh since

    def _teach(self, depth: int, tokens: Sequence[int], wanted: Sequence[int], *, oracle: bool) -> NDArray[np.float32]:
        with self._trusted():
            worker = self._teacher(depth, wanted[-1] + 1, oracle)
            with awake(worker):
                return np.concatenate([_call(worker, tokens, *part) for part in chunks(wanted)])

    def replayed(self, depth: int, scripts: Sequence[Script], limits: Limits, harvest: ReferenceHarvest) -> None:
        """Play the very plans that a candidate was given, at native precision: same calls, same batch shapes."""
        with self._trusted():
            worker = self.engine.start_lm(self._stock(), depth=depth, limits=limits)
            try:
                replay(worker, scripts, limits, lambda: 0, lambda rows: harvest(worker, rows))
            finally:
                worker.close()

    @contextmanager
    def beside(self, depth: int, limits: Limits) -> Generator[Turn]:
        """The stock at native precision in a worker like a candidate's, which runs when it is its turn."""
        with self._trusted():
            worker = self.engine.start_lm(self._stock(), depth=depth, limits=limits)
            worker.pause()

        @contextmanager
        def turn() -> Generator[LmWorker]:
            with self._trusted(), awake(worker):
                yield worker

        try:
            yield turn
        finally:
            worker.close()

    def draw(self, seed: int, tier: Tier) -> tuple[Tensor, ...]:
        """Fresh inputs of a module subject."""
        with self._trusted(), awake(worker := self._stock_module()):
            return worker.draw(seed, tier)

    def call(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """The stock module's outputs."""
        with self._trusted(), awake(worker := self._stock_module()):
            return worker.call(inputs)

    def close(self) -> None:
        """End all reference workers; the next question starts new ones."""
        workers: list[LmWorker | ModuleWorker] = [worker for _, worker in self._teachers.values()]
        workers += [self._module] if self._module is not None else []
        self._teachers, self._module, self._prepared = {}, None, None
        for worker in workers:
            worker.close()

    def _stock(self) -> Prepared:
        if self._prepared is None:
            self._prepared = self.engine.prepare(self.stock)
        return self._prepared

    def _teacher(self, depth: int, length: int, oracle: bool) -> LmWorker:
        held = self._teachers.pop((depth, oracle), None)
        if held is not None and held[0].length < length:
            held[1].close()
            held = None
        if held is None:
            self._forget_other_depths(depth)
            limits = Limits(slots=1, length=_rounded(length), tokens=CHUNK, rows=ROWS)
            held = limits, self.engine.start_lm(self._stock(), depth=depth, limits=limits, oracle=oracle)
            held[1].pause()
        self._teachers[depth, oracle] = held
        return held[1]

    def _forget_other_depths(self, depth: int) -> None:
        """An oracle holds twice or four times the weights: only those of one tier stay."""
        for key in [key for key in self._teachers if key[0] != depth]:
            self._teachers.pop(key)[1].close()

    def _stock_module(self) -> ModuleWorker:
        if self._module is None:
            self._module = self.engine.start_module(self._stock())
            self._module.pause()
        return self._module

    @contextmanager
    def _trusted(self) -> Generator[None]:
        try:
            yield
        except CandidateFailed as error:
            self.close()
            raise EngineLost(f"the stock forward failed as a reference: {error}; {error.log}") from error
        except EngineLost:
            self.close()
            raise


@contextmanager
def awake(worker: LmWorker | ModuleWorker) -> Generator[None]:
    """Running inside, paused before and after."""
    worker.resume()
    yield
    worker.pause()


def _rounded(length: int) -> int:
    """Positions in steps of 256, so that a slightly longer sequence needs no new worker."""
    return -(-length // 256) * 256


def chunks(wanted: Sequence[int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(start, end, rows) of calls that cover position 0 to the last wanted one, within `CHUNK` and `ROWS`."""
    start, rows = 0, list[int]()
    for position in wanted:
        while position >= start + CHUNK:
            yield start, start + CHUNK, tuple(rows)
            start, rows = start + CHUNK, []
        if len(rows) == ROWS:
            yield start, start + rows[-1] + 1, tuple(rows)
            start, rows = start + rows[-1] + 1, []
        rows.append(position - start)
    yield start, wanted[-1] + 1, tuple(rows)


def _call(worker: LmWorker, tokens: Sequence[int], start: int, end: int, rows: Sequence[int]) -> NDArray[np.float32]:
    worker.step(tokens[start:end], (Segment(slot=0, start=start, length=end - start),), rows, 0)
    return rows_of(worker.rows(0, len(rows)))
