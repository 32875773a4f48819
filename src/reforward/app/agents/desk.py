"""The desk: owns one open house, takes jobs from any number of guests, does them one at a time, answers durably.

Guests call from threads of their own; `work` runs in the one thread that uses the engine, so that nothing is packed or profiled
while something is timed. Trees are built beside it on machines with a core to spare (`builder.py`). A job is a record before its
guest hears of it and its answer is a record before anybody is told, so a guest that reconnects, or a desk that is opened again
on the same run, finds both.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from reforward.app.agents import public
from reforward.app.agents.builder import Builder
from reforward.app.agents.public import Costs, Look, Ruling
from reforward.app.budget import Budget
from reforward.app.cycle import Cycle
from reforward.app.events import Emit, Working
from reforward.app.house import House
from reforward.app.journal import Journal
from reforward.app.submit import refuse_incumbent
from reforward.app.utilisation import Share, Span, Utilisation, utilisation
from reforward.domain.candidate import Candidate
from reforward.domain.errors import BadInput, EngineLost, NoSuchJob, ReforwardError, Unavailable
from reforward.domain.job import Answer, Job, Kind
from reforward.domain.ports import Idea, Unable
from reforward.domain.record import Record, short
from reforward.domain.verdict import Verdict
from reforward.ledger.views import every, only
from reforward.propose.inbox import Inbox

MOST_WAITING = 64
"""Jobs of one author that may wait; more are refused."""
NAME = 60
"""Characters of an author's name."""


@dataclass(frozen=True, kw_only=True)
class State:
    """A job, as its guest sees it."""

    id: str
    kind: Kind
    state: Literal["queued", "running", "done", "refused"]
    ahead: int = 0
    """Jobs that will be done before it, the running one included."""
    result: Ruling | Look | Costs | None = None
    error: str = ""


class Desk:
    """See the module. Everything but `work` may be called from any thread."""

    def __init__(self, house: House, journal: Journal, budget: Budget, emit: Emit, *, share: bool = True) -> None:
        self.house, self.journal, self.budget, self.emit = house, journal, budget, emit
        self.share = share
        """Authors see what others tried, and work against the best of all; otherwise each sees its own line alone."""
        self.inbox = Inbox()
        self.cycle = Cycle(house, journal, self.inbox, budget, emit)
        self.spans: list[Span] = []
        self.closed = self.finishing = False
        self.running: Job | None = None
        self._changed = threading.Condition()
        self._jobs = {job.id: job for job in every(house.ledger, Job) if job.run == journal.run.id}
        self._answers = {answer.job: answer for answer in every(house.ledger, Answer) if answer.job in self._jobs}
        self._waiting = [job for job in self._jobs.values() if job.id not in self._answers]
        self._authors = {
            job.id: journal.proposal_of(job.candidate).author for job in self._waiting if job.kind == "submit"
        }
        self.builder = Builder(house.engine, self._wake)
        for job in self._waiting:
            self.builder.want(only(house.ledger.get(job.candidate), Candidate))

    # --- for guests ---

    def ask(self, kind: Kind, candidate: Candidate, *, author: str, reason: str = "", repeat: int = 0) -> State:
        """Put a job into the queue and say where it stands; asked before, it is the same job and may be done already."""
        with self._changed:
            self._refuse_when_closed()
            job = self._job(kind, candidate, author, repeat)
            if job.id not in self._jobs:
                self._refuse_too_many(author)
                if kind == "submit":
                    refuse_incumbent(self.house, candidate, self.journal.incumbent)
                    self._propose(candidate, author, reason)
                self.house.ledger.append(candidate, job)
                self._jobs[job.id], self._authors[job.id] = job, author[:NAME]
                self._waiting.append(job)
                self.builder.want(candidate)
                self._changed.notify_all()
            elif kind == "submit":
                self._propose(candidate, author, reason)
        return self.state(job.id)

    def state(self, job_id: str, *, wait_s: float = 0.0) -> State:
        """Where a job stands, after at most `wait_s` seconds of waiting for its end."""
        with self._changed:
            if job_id not in self._jobs:
                raise NoSuchJob(f"there is no job {job_id!r} in this run; ask again, the same request is the same job")
            self._changed.wait_for(lambda: job_id in self._answers or self.closed, max(0.0, wait_s))
            return self._state(self._jobs[job_id])

    def refuse(self, kind: Kind, author: str, error: BadInput) -> None:
        """Record a tree that is no candidate, with what was said to its author."""
        with self._changed:
            what = f"{kind} by {author[:NAME]}: {error}"[: public.DETAIL]
            self.journal.skip(
                Unable(author=author[:NAME], what=what, remedy="send a tree that keeps the rules of the brief")
            )

    def shares(self) -> tuple[Share, ...]:
        """What each author has had of the engine, and has waiting."""
        with self._changed:
            waiting = [self._author(job) for job in self._waiting]
            names = sorted({span.author for span in self.spans} | set(waiting))
            return tuple(Share(author=name, seconds=self.had_s(name), waiting=waiting.count(name)) for name in names)

    def had_s(self, author: str) -> float:
        """Seconds of the engine that this author has had."""
        return sum(span.seconds for span in self.spans if span.author == author)

    def utilisation(self) -> Utilisation:
        """How the engine's time was spent so far."""
        return utilisation(self.spans, self.cycle.elapsed_s, self.shares(), self.builder.seconds)

    def incumbent(self, author: str) -> Candidate:
        """What this author works against: the run's incumbent, or without sharing the best that it was accepted itself."""
        if self.share:
            return self.journal.incumbent
        own = [v for v in self.journal.accepted if self.journal.proposal_of(v.candidate).author == author[:NAME]]
        return only(self.house.ledger.get(own[-1].candidate), Candidate) if own else self.journal.base

    def is_shown(self, candidate: Candidate, author: str) -> bool:
        """It may be read by this author: it is shared, where the run began, or its own."""
        if self.share or candidate.id in (self.house.loaded.stock.id, self.journal.base.id):
            return True
        proposed = any(p.candidate == candidate.id and p.author == author[:NAME] for p in self.journal.proposals)
        asked = (job.candidate == candidate.id and self._author(job) == author[:NAME] for job in self._jobs.values())
        return proposed or any(asked)

    def close(self) -> None:
        """Take no more jobs; whoever waits is told. What waits in the queue is done when the run is resumed."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def finish(self) -> None:
        """Do what waits, then close: nobody is left who could ask for more."""
        with self._changed:
            self.finishing = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """The budget has ended."""
        elapsed = self.cycle.elapsed_s
        return self.budget.over(elapsed) or self.budget.screening_over(elapsed, self.journal.screened)

    # --- for the one thread that uses the engine ---

    def work(self) -> None:
        """Do jobs until the desk is closed or its budget ends; the author who has had least is served first."""
        try:
            while (job := self._take()) is not None:
                begun = self.cycle.elapsed_s
                answer = self._answer(job)
                self._finish(job, answer, Span(author=self._author(job), begun_s=begun, ended_s=self.cycle.elapsed_s))
        finally:
            self.close()
            self.builder.close()

    def _take(self) -> Job | None:
        with self._changed:
            left = self.budget.left(self.cycle.elapsed_s)
            self._changed.wait_for(self._has_next, min(left, threading.TIMEOUT_MAX))
            ready = self._ready()
            if self.closed or not ready or self.over:
                return None
            job = min(ready, key=lambda job: self.had_s(self._author(job)))
            self._waiting.remove(job)
            self.running = job
            return job

    def _ready(self) -> list[Job]:
        return [job for job in self._waiting if not self.builder.unbuilt(job.candidate)]

    def _has_next(self) -> bool:
        """Something can be done, or nothing will come any more."""
        return bool(self._ready()) or self.closed or (self.finishing and not self._waiting)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _answer(self, job: Job) -> Answer | None:
        """None if the budget ended or the desk was closed first: the job stays open for whoever resumes the run."""
        author = self._author(job)
        self.emit(Working(what=f"{job.kind} {short(job.candidate)} for {author}"))
        try:
            made = self._done(job, again=True)
        except ReforwardError as error:
            return None if self.closed else Answer(job=job.id, result="", error=str(error))
        if made is None:
            return None
        return Answer(job=job.id, result=made.id, error="")

    def _done(self, job: Job, *, again: bool) -> Record | None:
        """The result; an engine that was lost is tried once more, since it restarts."""
        try:
            candidate = only(self.house.ledger.get(job.candidate), Candidate)
            match job.kind:
                case "measure":
                    return self._measured(candidate, only(self.house.ledger.get(job.against), Candidate))
                case "submit":
                    return self._submitted(candidate)
                case "profile":
                    made = self.house.measurer.profile(candidate, self.house.workload, "fast")
                    self.house.ledger.append(made)
                    return made
        except EngineLost:
            if not again or self.closed:
                raise
            return self._done(job, again=False)

    def _measured(self, candidate: Candidate, incumbent: Candidate) -> Verdict:
        """Facts of the fast tier and what the judge says to them, outside any turn: it admits nothing."""
        left = self.budget.left(self.cycle.elapsed_s)
        facts, outputs = self.house.measure(candidate, incumbent, "fast", confirmations=0, seconds=left)
        verdict = self.house.judge(0).rule(facts, outputs, self.house.contract)
        self.house.ledger.append(facts, verdict)
        return verdict

    def _submitted(self, candidate: Candidate) -> Verdict | None:
        proposal = self.journal.proposal_of(candidate.id)
        idea = Idea(candidate=candidate, parent=proposal.parent, author=proposal.author, reason=proposal.reason)
        self.inbox.put(idea)
        self.cycle.run()
        return next((v for v in reversed(self.journal.verdicts) if v.candidate == candidate.id), None)

    def _finish(self, job: Job, answer: Answer | None, span: Span) -> None:
        if answer is not None:
            self.house.ledger.append(answer)
        with self._changed:
            self.running = None
            self.spans.append(span)
            if answer is not None:
                self._answers[job.id] = answer
            self._changed.notify_all()

    # --- small things ---

    def _job(self, kind: Kind, candidate: Candidate, author: str, repeat: int) -> Job:
        against = self.incumbent(author).id if kind == "measure" else ""
        return Job(run=self.journal.run.id, kind=kind, candidate=candidate.id, against=against, repeat=repeat)

    def _propose(self, candidate: Candidate, author: str, reason: str) -> None:
        parent = self.incumbent(author).id
        self.journal.propose(Idea(candidate=candidate, parent=parent, author=author[:NAME], reason=reason))

    def _author(self, job: Job) -> str:
        return self._authors.get(job.id, "before the restart")

    def _state(self, job: Job) -> State:
        answer = self._answers.get(job.id)
        if answer is None:
            running = self.running is not None and self.running.id == job.id
            ahead = 0 if running else _before(job, self._waiting) + (self.running is not None)
            error = "the run has ended; resume it to have this done" if self.closed and not running else ""
            return State(
                id=job.id, kind=job.kind, state="running" if running else "queued", ahead=ahead, error=error
            )  # fmt: skip
        if answer.error:
            return State(id=job.id, kind=job.kind, state="refused", error=answer.error)
        shown = public.result(self.house.ledger, job.kind, self.house.ledger.get(answer.result))
        return State(id=job.id, kind=job.kind, state="done", result=shown)

    def _refuse_when_closed(self) -> None:
        if self.closed or self.over:
            raise Unavailable("the run has ended and takes no more jobs; begin another one, or resume it")

    def _refuse_too_many(self, author: str) -> None:
        if sum(self._author(job) == author[:NAME] for job in self._waiting) >= MOST_WAITING:
            raise BadInput(f"{MOST_WAITING} jobs of {author[:NAME]!r} wait already; wait for some of them first")


def _before(job: Job, waiting: Iterable[Job]) -> int:
    """At most so many are served before it: those that came earlier."""
    return sum(1 for _ in takewhile(lambda other: other.id != job.id, waiting))
