"""The entry to this package: one candidate against the incumbent on one workload at one tier."""

import random
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import cast

from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.errors import BadInput, CandidateFailed
from reforward.domain.measurement import ArmName, Failed, Measurement, Output, Stage
from reforward.domain.ports import Engine, Prepared, Stopping
from reforward.domain.profile import Profile
from reforward.domain.subject import Tier
from reforward.domain.workload import Workload
from reforward.measure.arrays import outputs_hash
from reforward.measure.lm import LmTrial
from reforward.measure.module import ModuleTrial
from reforward.measure.references import References
from reforward.measure.replay import Clock
from reforward.measure.session import ArmFailed, Session, Trial, blame
from reforward.measure.shorten import DEVICE_TOKENS, FAST_TOKENS, shorten
from reforward.measure.text import Encode

ARMS: tuple[ArmName, ...] = ("incumbent", "candidate")

Facts = tuple[Measurement | Failed, tuple[Output, ...]]


def utc_now() -> str:
    """ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Measurer:
    """Runs sessions on one engine. Keeps the trusted reference workers between sessions; `close` ends them.

    `steps` is how many greedy steps a free-running worker may take in one call: with 1 the entry point `step` is
    measured, with more `run` wherever the plans allow it.
    """

    def __init__(
        self,
        engine: Engine,
        stock: Candidate,
        contract: Contract,
        *,
        encode: Encode | None = None,
        clock: Clock = time.perf_counter_ns,
        steps: int = 1,
        nonce: Callable[[], str] = lambda: secrets.token_hex(16),
        draw: random.Random | None = None,
        now: Callable[[], str] = utc_now,
    ) -> None:
        self.engine, self.contract, self.encode, self.clock, self.nonce, self.now = (
            engine, contract, encode, clock, nonce, now,
        )  # fmt: skip
        self.steps = steps
        self.draw = draw or secrets.SystemRandom()
        self.references = References(engine, stock)

    def measure(
        self, candidate: Candidate, incumbent: Candidate, workload: Workload, tier: Tier, stopping: Stopping
    ) -> Facts:
        """Facts of one session, or how it failed. The workload that is named is the one that was handed in."""
        started, nonce = self.now(), self.nonce()
        try:
            arms: dict[ArmName, Prepared] = {}
            for arm in ARMS:
                with blame(arm):
                    arms[arm] = self.engine.prepare(candidate if arm == "candidate" else incumbent)
            trial = self._trial(workload, tier, nonce)
            session = Session(
                trial, arms, stopping, threads=self.engine.target.launch.threads, together=self._on_device
            )
            session.run()
        except ArmFailed as failure:
            return _failed(failure, candidate, workload, tier, self.engine.target.id, started), ()
        outputs = trial.outputs()
        measurement = Measurement(
            tier=tier,
            target=self.engine.target.id,
            workload=workload.id,
            nonce=nonce,
            candidate=session.logs["candidate"].arm(),
            incumbent=session.logs["incumbent"].arm(),
            samples=tuple(session.samples),
            outputs=outputs_hash(outputs),
            started_at=started,
        )
        return measurement, outputs

    def profile(self, candidate: Candidate, workload: Workload, tier: Tier) -> Profile | Failed:
        """The operations of one pass of one candidate, after a warm-up."""
        started = self.now()
        trial = self._trial(workload, tier, self.nonce())
        try:
            with blame("candidate"):
                worker = trial.start(self.engine.prepare(candidate))
                try:
                    trial.warm(worker, 0)
                    worker.resume()
                    worker.profile(on=True)
                    timed = trial.timed(worker, "incumbent", 0, 0)  # of that arm nothing is kept for the judge
                    worker.resume()
                    ops = worker.profile(on=False)
                finally:
                    worker.close()
        except ArmFailed as failure:
            return _failed(failure, candidate, workload, tier, self.engine.target.id, started)
        return Profile(
            tier=tier,
            target=self.engine.target.id,
            workload=workload.id,
            candidate=candidate.id,
            seconds=timed.seconds,
            ops=ops,
            started_at=started,
        )

    def close(self) -> None:
        """End the reference workers."""
        self.references.close()

    @property
    def _on_device(self) -> bool:
        return self.engine.target.launch.device != "cpu"

    def _trial(self, workload: Workload, tier: Tier, nonce: str) -> Trial:
        if workload.inputs:
            return ModuleTrial(self.engine, self.references, tier, nonce, inputs=workload.inputs, clock=self.clock)
        if self.encode is None:
            raise BadInput("a workload of requests needs a tokenizer; this subject has none")
        played = shorten(workload, DEVICE_TOKENS if self._on_device else FAST_TOKENS) if tier == "fast" else workload
        return LmTrial(
            self.engine, self.references, self.contract, played, tier, nonce,
            encode=self.encode, clock=self.clock, steps=self.steps, draw=self.draw,
        )  # fmt: skip


def _failed(
    failure: ArmFailed, candidate: Candidate, workload: Workload, tier: Tier, target: str, started: str
) -> Failed:
    cause: CandidateFailed = failure.cause
    return Failed(
        tier=tier,
        target=target,
        workload=workload.id,
        candidate=candidate.id,
        arm=failure.arm,
        stage=cast(Stage, cause.stage),
        reason=cause.reason,
        log=cause.log,
        started_at=started,
    )
