"""Brings candidates into service and takes them out again, on threads of its own, so that serving never waits for a build.

A new worker is built, started and warmed beside traffic on the same vault; then it is a canary; then the driver makes it main
at a step boundary. A worker that dies is replaced by the stock forward.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.deployment import Cause, Deployment, Rollout, Validity
from reforward.domain.errors import BadInput, CandidateFailed, EngineLost, ReforwardError, Unavailable
from reforward.domain.ports import Engine, Prepared
from reforward.domain.record import Record, short
from reforward.domain.spec import Limits
from reforward.serve.driver import Driver, Role
from reforward.serve.lane import Clock, Lane
from reforward.serve.rollout import Policy, Ruling, Trial
from reforward.serve.sequence import Sequence

KEPT_S = 600.0
"""So long a worker that was main stays warm."""
LOOK_S = 0.1
"""Between two looks at a trial."""
STARTS = 3
"""Tries to start the stock forward before service is given up."""
State = Literal["starting", "ready", "recovering", "failed"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A candidate to serve, and why it may."""

    candidate: Candidate
    verdict: str = ""
    validity: Validity = field(default_factory=Validity)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How every lane is made."""

    limits: Limits
    chunk: int
    exact: bool
    clock: Clock = time.perf_counter


class Switch:
    """Owns the driver. `record` stores what happens; `tell` says it to whoever watches."""

    def __init__(
        self, engine: Engine, stock: Candidate, contract: Contract, shape: Shape, *,
        record: Callable[[Record], None], tell: Callable[[str], None], ended: Callable[[Sequence], None],
    ) -> None:  # fmt: skip
        self.engine, self.stock, self.contract, self.shape = engine, stock, contract, shape
        self.record, self.tell = record, tell
        self.driver = Driver(lost=self._lost, need_stock=self._need_stock, ended=ended)
        self.jobs = ThreadPoolExecutor(1, thread_name_prefix="switch")
        self.rescues = ThreadPoolExecutor(1, thread_name_prefix="rescue")
        self.prepared: dict[str, Prepared] = {}
        self.state: State = "starting"
        self.deployed: list[Deployment] = []
        """Since the start, newest last."""
        self.choices: dict[str, Choice] = {}
        """By id of the deployment."""
        self.kept_until = 0.0
        self.crashes = 0
        self.coming_stock = False

    # --- from any thread ---

    def start(self, first: Choice) -> None:
        """Serve `first`, or the stock forward if it cannot be started. Blocks until it is warm."""
        begun = time.monotonic()
        detail = ""
        try:
            lane = self._ready(first)
        except CandidateFailed as error:
            self.tell(f"{short(first.candidate.id)} cannot serve ({error}); the stock forward does")
            first, detail = Choice(candidate=self.stock), str(error)
            lane = self._ready(first)
        self.driver.start()
        self.driver.call(lambda: self.driver.install("main", lane)).result()
        self._deployed(first, "started", detail, begun)
        self.state = "ready"

    def deploy(self, choice: Choice, policy: Policy | None) -> "Future[str]":
        """Bring a candidate into service: by a canary, or at once without a policy. The future tells how it ended."""
        return self.jobs.submit(lambda: self._deploy(choice, policy))

    def rollback(self, to: str = "") -> "Future[str]":
        """Go back to a deployment since the start, by id or its first digits; by default to the one before."""
        return self.jobs.submit(lambda: self._rollback(to))

    def close(self) -> None:
        """End all. Sequences in flight are left as they are: let them end before."""
        self.state = "failed"
        self.jobs.shutdown(wait=False, cancel_futures=True)
        self.rescues.shutdown(wait=False, cancel_futures=True)
        self.driver.stop()
        for lane in set(self.driver.lanes.values()):
            lane.worker.close()

    # --- jobs ---

    def _deploy(self, choice: Choice, policy: Policy | None) -> str:
        begun = time.monotonic()
        self.tell(f"{short(choice.candidate.id)}: build, start, warm-up")
        try:
            lane = self._ready(choice)
        except CandidateFailed as error:
            self._rolled_out(choice, Ruling(outcome="rolled-back", reason=str(error)), None, begun)
            return f"rolled-back: {error}"
        if policy is not None:
            ruling, trial = self._try(lane, policy)
            self._rolled_out(choice, ruling, trial, begun)
            if ruling.outcome != "promoted":
                return f"{ruling.outcome}: {ruling.reason}"
        cause: Cause = "forced" if policy is None else "promoted"
        try:
            return self._to_main(lane, choice, cause, "", time.monotonic())
        except CandidateFailed as error:
            self._rolled_out(choice, Ruling(outcome="rolled-back", reason=str(error)), None, begun)
            return f"rolled-back: {error}"

    def _try(self, lane: Lane, policy: Policy) -> tuple[Ruling, Trial]:
        trial = Trial(policy, self.contract, self.engine.subject.dtype)
        memory = lane.worker.memory()
        weights, own = memory.weights, memory.own
        self.driver.call(lambda: self._begin_trial(lane, trial)).result()
        until, ruling = time.monotonic() + policy.seconds, None
        while ruling is None:
            time.sleep(LOOK_S)
            ruling = self.driver.call(lambda: self._rule(lane, trial, own, weights, time.monotonic() > until)).result()
        if ruling.outcome != "promoted":
            self._close(self.driver.call(lambda: self.driver.remove("canary")).result())
        return ruling, trial

    def _begin_trial(self, lane: Lane, trial: Trial) -> None:
        if "main" not in self.driver.lanes:
            raise Unavailable("nothing serves at the moment that a canary could be compared with; try again")
        self.driver.trial = trial
        self.driver.install("canary", lane)

    def _rule(self, lane: Lane, trial: Trial, own: int, weights: int, late: bool) -> Ruling | None:
        """On the driver's thread."""
        main = self.driver.lanes.get("main")
        if trial.ended_by is not None:
            own_now = incumbent = own
        else:
            own_now, incumbent = max(own, lane.worker.memory().own), main.worker.memory().own if main else own
        ruling = trial.ruling(memory=own_now, incumbent_memory=incumbent, weights=weights, late=late)
        if ruling is not None:
            self.driver.trial = None
        return ruling

    def _to_main(self, lane: Lane, choice: Choice, cause: Cause, detail: str, begun: float) -> str:
        dropped = self.driver.call(lambda: self._switched(lane)).result()
        self._close(dropped)
        self._deployed(choice, cause, detail, begun)
        self.kept_until = time.monotonic() + KEPT_S
        return f"{cause}: {short(choice.candidate.id)}"

    def _switched(self, lane: Lane) -> Lane | None:
        dropped = self.driver.switch(lane)
        if self.driver.lanes.get("main") is not lane:
            self._close(dropped)
            raise CandidateFailed("run", "its worker died while it took over")
        return dropped

    def _rollback(self, to: str) -> str:
        begun = time.monotonic()
        target = self._earlier(to)
        choice = self.choices[target.id]
        old = self.driver.lanes.get("old")
        warm = old is not None and old.candidate == choice.candidate
        lane = old if warm and old is not None else self._ready(choice)
        detail = f"back to {short(target.id)}, {'still warm' if warm else 'started anew'}"
        return self._to_main(lane, choice, "rolled-back", detail, begun)

    def _earlier(self, to: str) -> Deployment:
        now = self.deployed[-1]
        known = [one for one in self.deployed if one.candidate != now.candidate] if not to else self.deployed
        found = [one for one in known if to in ("", one.id) or short(one.id).startswith(to)]
        if not found:
            raise BadInput(
                f"there is no deployment {to or 'of another candidate'} since the server started; see deployments"
            )
        return found[-1]

    # --- when a worker is lost ---

    def _lost(self, lane: Lane, role: Role, error: ReforwardError) -> None:
        """On the driver's thread."""
        self.crashes += 1
        self.tell(f"the worker of {short(lane.candidate.id)} ({role}) is gone: {error}")
        trial = self.driver.trial
        if trial is not None and role in ("canary", "main"):
            trial.end("rolled-back" if role == "canary" else "inconclusive", str(error))
        if role == "main":
            begun = time.monotonic()
            self.state = "recovering"
            self.rescues.submit(lambda: self._recover(lane, str(error), begun))
        self.rescues.submit(lane.worker.close)

    def _recover(self, lost: Lane, why: str, begun: float) -> None:
        stock = Choice(candidate=self.stock)
        try:
            self._retried(stock)
        except ReforwardError as error:
            self.state = "failed"
            self.tell(f"no worker can be started: {error}")
            self._give_up(str(error))
            return
        self.state = "ready"
        self._deployed(stock, "crashed", f"{short(lost.candidate.id)}: {why}", begun)

    def _retried(self, stock: Choice) -> None:
        for attempt in range(STARTS):
            try:
                lane = None if self._has_main() else self._ready(stock, warm=False)
                if lane is not None:
                    self._close(self.driver.call(lambda lane=lane: self._install_main(lane)).result())
                return
            except (CandidateFailed, EngineLost):
                if attempt == STARTS - 1:
                    raise

    def _has_main(self) -> bool:
        return self.driver.call(lambda: "main" in self.driver.lanes).result()

    def _install_main(self, lane: Lane) -> Lane | None:
        """The lane, if somebody was faster."""
        if "main" in self.driver.lanes:
            return lane
        self.driver.install("main", lane)
        return None

    def _need_stock(self) -> None:
        """On the driver's thread: something lies outside the validity of main."""
        if not self.coming_stock:
            self.coming_stock = True
            self.rescues.submit(self._bring_stock)

    def _bring_stock(self) -> None:
        try:
            lane = self._ready(Choice(candidate=self.stock), warm=False)
            self.driver.call(lambda: self.driver.install("stock", lane)).result()
        except ReforwardError as error:
            self.tell(f"the stock forward cannot be started: {error}")
            self._give_up(str(error))
        finally:
            self.coming_stock = False

    def _give_up(self, reason: str) -> None:
        """Requests that wait for a worker end with an error."""
        self.driver.call(lambda: self.driver.fail_homeless(reason)).result()

    # --- all of these ---

    def expire(self) -> None:
        """Let go of a worker that was main long ago. Called now and then."""
        if time.monotonic() > self.kept_until:
            self._close(self.driver.call(self._expired).result())

    def _expired(self) -> Lane | None:
        old = self.driver.lanes.get("old")
        return self.driver.remove("old") if old is not None and old.scheduler.idle else None

    def _ready(self, choice: Choice, *, warm: bool = True) -> Lane:
        """A lane, warm unless somebody is waiting for it already: then the first request warms it sooner than we can."""
        candidate, shape = choice.candidate, self.shape
        prepared = self.prepared.get(candidate.id) or self.engine.prepare(candidate)
        self.prepared[candidate.id] = prepared
        worker = self.engine.start_lm(prepared, depth=self.engine.subject.depth, limits=shape.limits)
        if worker.watermark != candidate.id:
            worker.close()
            raise CandidateFailed("load", "the code that runs is not the candidate's")
        lane = Lane(
            worker, shape.limits, chunk=shape.chunk, exact=shape.exact, validity=choice.validity, clock=shape.clock
        )
        if warm:
            lane.warm()
        return lane

    def _close(self, lane: Lane | None) -> None:
        if lane is not None:
            lane.worker.close()

    def _deployed(self, choice: Choice, cause: Cause, detail: str, begun: float) -> None:
        made = Deployment(
            target=self.engine.target.id,
            candidate=choice.candidate.id,
            verdict=choice.verdict,
            validity=choice.validity,
            replaces=self.deployed[-1].id if self.deployed else "",
            cause=cause,
            detail=detail,
            seconds=time.monotonic() - begun,
            at=_now(),
        )
        self.choices[made.id] = choice
        self.deployed.append(made)
        self.record(made)
        self.tell(f"{short(made.candidate)} serves: {cause} {detail}".rstrip())

    def _rolled_out(self, choice: Choice, ruling: Ruling, trial: Trial | None, begun: float) -> None:
        counted = min(len(trial.notes["canary"]), len(trial.notes["control"])) if trial else 0
        self.record(
            Rollout(
                target=self.engine.target.id,
                candidate=choice.candidate.id,
                incumbent=self.deployed[-1].candidate,
                outcome=ruling.outcome,
                reason=ruling.reason,
                findings=ruling.findings,
                requests=counted,
                harmed=trial.harmed if trial else 0,
                seconds=time.monotonic() - begun,
                at=_now(),
            )
        )
        self.tell(f"{short(choice.candidate.id)} {ruling.outcome}: {ruling.reason}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
