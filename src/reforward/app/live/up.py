"""`up`: serve, learn what is asked, look for a faster forward on that traffic, bring it into service; again when traffic shifts.

The server and the search share one engine and its resident weights. Serving comes first: the search waits while answers are
in flight, for `YIELD_S` at most between two pairs of launches.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from reforward.app.budget import Budget
from reforward.app.calibrate import calibrated
from reforward.app.config import load_config
from reforward.app.cycle import Cycle
from reforward.app.events import CouldNot, Emit, Event, Judged, Paired, Promoted
from reforward.app.house import House, house_on
from reforward.app.live.capture import Keep, open_tap
from reforward.app.live.pulse import Pulse
from reforward.app.live.serving import Serving, Setup, open_serving
from reforward.app.live.traces import shape_key
from reforward.app.optimize import open_journal
from reforward.app.settings import Settings
from reforward.app.workloads import Observed, workloads
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.errors import BadInput, ReforwardError
from reforward.domain.record import short
from reforward.domain.workload import Request, Workload
from reforward.judge.ruling import percent
from reforward.ledger.views import accepted, only
from reforward.propose.search import Passes
from reforward.propose.winners import Winners
from reforward.serve.rollout import Policy
from reforward.traffic.blocks import TOKENS, PrefixHasher
from reforward.traffic.drift import FEWEST, LEAST_WINDOWS, Looked
from reforward.traffic.keys import secret
from reforward.traffic.trace import Trace
from reforward.traffic.watch import WINDOWS, Watch

YIELD_S = 20.0
RECENT = 2
"""Windows that a search is for: those that gave an alarm are all of the new traffic."""
CROWDED = 1.0
"""What is served beside the search is the load that a forward is wanted for: it disturbs no session. A canary has the last word."""
LOOK_S = 0.2
"""Between two looks at whether the server is busy, or the window full."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How the search goes about it."""

    window: int = 500
    """Requests after which the search begins, and of the windows in which a shift is looked for."""
    windows: int = WINDOWS
    """Of a reference that later windows are compared with; fewer know its unrest less well, and alarm more often for nothing."""
    min_gain: float = 0.05
    requests: int = 4
    """Of the distilled workload."""
    canary: int = 20
    """Requests that a winner must answer as well as the incumbent before it serves alone."""
    candidates: int | None = None
    """Screened in one round; None: until the ideas end."""

    def __post_init__(self) -> None:
        if self.window < FEWEST:
            raise BadInput(f"--window must be at least {FEWEST}, or chance looks like a shift; got {self.window}")
        if self.windows < LEAST_WINDOWS:
            raise BadInput(f"--windows must be at least {LEAST_WINDOWS}, or unrest is not known; got {self.windows}")


class Senses:
    """What is known of the traffic: sinks of the server's tap."""

    def __init__(self, habits: Habits, hasher: PrefixHasher) -> None:
        self.shifts: queue.SimpleQueue[Looked] = queue.SimpleQueue()
        self.watch = Watch(hasher, self.shifts.put, window=habits.window, windows=habits.windows)
        self.pulse = Pulse(habits.window // 2)


class Ended(Exception):
    """The search is to end in the middle of a session."""


class Loop:
    """The search beside a server. `run` blocks until `stop`; it is driven by a thread of its own."""

    def __init__(self, serving: Serving, senses: Senses, habits: Habits, emit: Emit) -> None:
        self.serving, self.habits, self.emit = serving, habits, emit
        self.watch, self.pulse, self.shifts = senses.watch, senses.pulse, senses.shifts
        self.begun = time.monotonic()
        self.ended, self.paused = threading.Event(), threading.Event()
        self.state = f"waiting for {habits.window} requests"

    def run(self) -> None:
        """Round after round."""
        try:
            while self._wait(lambda: len(self.watch.requests()) >= self.habits.window):
                if not self._round() and not self._wait(self._shifted):
                    return
        except Ended:
            return
        except ReforwardError as error:
            self.state = f"ended: {error}"
            self.say(f"the search has ended, serving goes on: {error}")
        finally:
            if self.state.startswith("searching"):
                self.state = "ended within a search"

    @property
    def doing(self) -> str:
        """In words."""
        return f"paused ({self.state})" if self.paused.is_set() else self.state

    def pause(self) -> None:
        """Begin nothing new."""
        self.paused.set()

    def resume(self) -> None:
        """Go on."""
        self.paused.clear()

    def stop(self) -> None:
        """End after the pair of launches of the moment."""
        self.ended.set()

    def say(self, text: str) -> None:
        """One line of the timeline."""
        self.serving.tell(f"{time.monotonic() - self.begun:7.1f} s  {text}")

    def _round(self) -> bool:
        """Search on what is asked now, beginning at what serves now; True if it was cut short by a shift."""
        shifted = False
        requests = self.watch.requests(RECENT * self.habits.window)
        self.state = "searching"
        self.say(f"{self.pulse.words()}; searching on {len(requests)} requests")
        with self._house(requests) as house:
            journal = open_journal(house, self._serves(), resume=False, proposers=("winners", "passes"))
            proposer = Winners(self._winners(house), Passes())
            cycle = Cycle(house, journal, proposer, Budget(candidates=self.habits.candidates or 1 << 30), self._heard)
            while self._wait(lambda: True) and not (shifted := self._shifted()) and cycle.turn():
                pass
            accepts = len(journal.accepted)
        self.state = "watching for a shift"
        found = f"{accepts} put forward" if accepts else f"{short(journal.incumbent.id)} stays the best"
        self.say(f"{journal.screened} candidates screened, {found}; {self.pulse.words()}")
        return shifted

    def _serves(self) -> Candidate:
        switch = self.serving.switch
        return switch.choices[switch.deployed[-1].id].candidate

    def _winners(self, house: House) -> list[Candidate]:
        turns = accepted(house.ledger, house.loaded.subject, house.engine.target, house.contract)
        return [only(house.ledger.get(one), Candidate) for one in dict.fromkeys(v.candidate for _, v in turns)]

    @contextmanager
    def _house(self, requests: tuple[Request, ...]) -> Generator[House]:
        serving, habits = self.serving, self.habits
        contract = Contract(numerics="reassociated", min_gain=habits.min_gain, most_crowded=CROWDED)
        seen = Observed(trace=Trace(requests=requests, bad_rows=(), source="served here"), source="served here")
        settings = Settings(min_gain=habits.min_gain, requests=habits.requests, length_scale=1.0)
        traffic = workloads(serving.loaded, serving.engine, settings, seen)
        traffic = replace(traffic, held_out=with_longest(traffic.held_out, requests))
        opened = house_on(
            serving.config, serving.loaded, serving.engine, serving.ledger, contract, traffic, self._heard
        )
        with opened as house:
            yield calibrated(house, self._heard)

    def _heard(self, event: Event) -> None:
        """On the search's own thread: give way between pairs, deploy what was promoted, tell the rest."""
        self.emit(event)
        match event:
            case Paired() | Judged() | CouldNot():
                self._give_way()
            case Promoted():
                self._deploy(event)
            case _:
                pass

    def _deploy(self, event: Promoted) -> None:
        gain = percent(event.verdict.gain) if event.verdict.gain else ""
        self.say(f"{short(event.candidate.id)} was proven faster, {gain}; {self.pulse.words()}")
        choice = self.serving.choose(event.candidate.id)
        self.say(self.serving.switch.deploy(choice, Policy(requests=self.habits.canary)).result())

    def _shifted(self) -> bool:
        """Told once."""
        if self.shifts.empty():
            return False
        self.say(f"traffic has shifted: {self.shifts.get().words}; {self.pulse.words()}")
        return True

    def _give_way(self) -> None:
        until = time.monotonic() + YIELD_S
        while self.paused.is_set() or (self.serving.busy and time.monotonic() < until):
            if self.ended.wait(LOOK_S):
                break
        if self.ended.is_set():
            raise Ended

    def _wait(self, ready: Callable[[], bool]) -> bool:
        """Until something is the case and nobody has paused the search; False if it is to end."""
        while not self.ended.is_set():
            if not self.paused.is_set() and ready():
                return True
            self.ended.wait(LOOK_S)
        return False


def with_longest(workload: Workload, window: tuple[Request, ...]) -> Workload:
    """A winner serves what it was judged on: so the longest request that was seen is among what it is judged on."""
    longest = max(window, key=lambda request: request.prompt_tokens + request.output_tokens)
    if longest.prompt_tokens + longest.output_tokens <= workload.longest:
        return workload
    last = replace(longest, arrival_s=workload.requests[-1].arrival_s, blocks=())
    return replace(workload, requests=(*workload.requests, last), weights=(*workload.weights, 1.0))


def up(subject: str, setup: Setup, habits: Habits, *, tell: Callable[[str], None], emit: Emit) -> None:
    """Serve SUBJECT and improve it until a signal comes. The shape of its traffic is kept as `capture` keeps it."""
    senses = Senses(habits, PrefixHasher(secret(shape_key(load_config())), TOKENS))
    tap, folder = open_tap(Keep(), unit=TOKENS, source=f"served: {subject}", more=[senses.watch, senses.pulse])
    tell(f"the shape of requests, never their content, is kept in {folder}")
    try:
        with open_serving(subject, setup, tell=tell, observe=tap.observe) as serving:
            serving.search = loop = Loop(serving, senses, habits, emit)
            thread = threading.Thread(target=loop.run, name="search")
            thread.start()
            try:
                serving.run()
            finally:
                loop.stop()
                thread.join()
    finally:
        tap.close()
