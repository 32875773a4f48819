"""One session: pairs of fresh launches, ABBA passes inside each pair, the idle arm paused, until the rule says stop."""

import statistics
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from reforward.domain.errors import CandidateFailed
from reforward.domain.measurement import Arm, ArmName, Memory, Output, Sample
from reforward.domain.ports import Prepared, Stopping, Worker
from reforward.engine.neighbours import Meter

ORDERS: tuple[tuple[ArmName, ...], ...] = (
    ("incumbent", "candidate", "candidate", "incumbent"),
    ("candidate", "incumbent", "incumbent", "candidate"),
)
"""ABBA and BAAB in turn, so that neither a drift within a pair nor the place at the start favours an arm."""


PAUSED: tuple[ArmName, ArmName] = ("candidate", "incumbent")


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One pass, as `Sample` holds it."""

    seconds: float
    ttft_s: tuple[float, ...] = ()
    decode_s: float = 0.0
    decode_tokens: int = 0


class Trial(Protocol):
    """What differs between hosts. `launch` and `text` say which secret material: same for both arms, never reused."""

    def start(self, prepared: Prepared) -> Worker:
        """A fresh worker, running."""
        ...

    def warm(self, worker: Worker, launch: int) -> None:
        """Untimed calls on material of their own. Leaves the worker paused."""
        ...

    def timed(self, worker: Worker, arm: ArmName, launch: int, text: int) -> Timed:
        """One pass. The worker is paused on entry and on return: material is made first, so that it has no time of its own."""
        ...

    def outputs(self) -> tuple[Output, ...]:
        """What was kept, beside the references' answers to the same inputs."""
        ...


class ArmFailed(Exception):
    """A worker of one arm broke a rule."""

    def __init__(self, arm: ArmName, cause: CandidateFailed) -> None:
        super().__init__(f"{arm}: {cause}")
        self.arm: ArmName = arm
        self.cause = cause


@dataclass(kw_only=True)
class ArmLog:
    """What a session learns about one arm besides times."""

    prepared: Prepared
    watermarks: list[str] = field(default_factory=list[str])
    load_s: list[float] = field(default_factory=list[float])
    memory: list[Memory] = field(default_factory=list[Memory])

    def arm(self) -> Arm:
        """As it enters the measurement: the worst memory, the first watermark that differs."""
        own = self.prepared.candidate.id
        return Arm(
            candidate=own,
            watermark=next((mark for mark in self.watermarks if mark != own), own),
            load_s=statistics.median(self.load_s),
            pack_s=self.prepared.pack_s,
            build_s=self.prepared.build_s,
            memory=max(self.memory, key=lambda memory: memory.own),
        )


class Session:
    """Runs pairs until `stopping` has seen enough; samples are kept in the order taken, none is dropped.

    `threads`: of each worker, so many processors it should find free.

    `together`: both workers of a pair start at the same time. On a device that is waiting for its driver, most of it; on a CPU
    they would take the processor from one another.
    """

    def __init__(
        self, trial: Trial, arms: dict[ArmName, Prepared], stopping: Stopping, *, threads: int, together: bool = False
    ) -> None:
        self.trial, self.stopping, self.threads, self.together = trial, stopping, threads, together
        self.logs: dict[ArmName, ArmLog] = {name: ArmLog(prepared=prepared) for name, prepared in arms.items()}
        self.samples: list[Sample] = []

    def run(self) -> None:
        """All pairs. Raises `ArmFailed`."""
        launch = 0
        while True:
            self._pair(launch)
            if self.stopping.observe(tuple(self.samples)) == "stop":
                return
            launch += 1

    def _pair(self, launch: int) -> None:
        order = ORDERS[launch % 2]
        workers: dict[ArmName, Worker] = {}
        try:
            if self.together:
                self._launch_both(workers)
            for arm in order[:2]:
                with blame(arm):
                    workers[arm] = self._warmed(workers[arm], launch) if self.together else self._launch(arm, launch)
            for place, arm in enumerate(order):
                with blame(arm):
                    self._pass(workers[arm], arm, launch, place // 2)
            for arm, worker in workers.items():
                with blame(arm):
                    self.logs[arm].memory.append(worker.memory())
        finally:
            for worker in workers.values():
                worker.close()

    def _launch(self, arm: ArmName, launch: int) -> Worker:
        log = self.logs[arm]
        worker = self.trial.start(log.prepared)
        log.watermarks.append(worker.watermark)
        log.load_s.append(worker.load_s)
        try:
            self.trial.warm(worker, launch)
        except BaseException:
            worker.close()
            raise
        return worker

    def _launch_both(self, workers: dict[ArmName, Worker]) -> None:
        """Start both, then pause them: the candidate first, since what it left running must not be the incumbent's fault."""
        with ThreadPoolExecutor(len(self.logs)) as pool:
            coming: dict[ArmName, Future[Worker]] = {
                arm: pool.submit(self.trial.start, log.prepared) for arm, log in self.logs.items()
            }
        failed: list[ArmName] = [arm for arm, future in coming.items() if future.exception()]
        workers.update({arm: future.result() for arm, future in coming.items() if arm not in failed})
        for arm in failed:
            with blame(arm):
                coming[arm].result()
        for arm in PAUSED:
            log, worker = self.logs[arm], workers[arm]
            log.watermarks.append(worker.watermark)
            log.load_s.append(worker.load_s)
            with blame(arm):
                worker.pause()

    def _warmed(self, worker: Worker, launch: int) -> Worker:
        worker.resume()
        self.trial.warm(worker, launch)
        return worker

    def _pass(self, worker: Worker, arm: ArmName, launch: int, text: int) -> None:
        meter = Meter(worker.pid, threads=self.threads)
        timed = self.trial.timed(worker, arm, launch, text)
        self.samples.append(
            Sample(
                arm=arm,
                launch=launch,
                order=len(self.samples),
                seconds=timed.seconds,
                ttft_s=timed.ttft_s,
                decode_s=timed.decode_s,
                decode_tokens=timed.decode_tokens,
                crowded=meter.crowded(),
            )
        )


@contextmanager
def blame(arm: ArmName) -> Generator[None]:
    """Name the arm whose worker failed."""
    try:
        yield
    except CandidateFailed as error:
        raise ArmFailed(arm, error) from error
