"""When traffic is no longer what it was: a trigger that is quick, a confirmation that is sure.

ADWIN (Bifet and Gavaldà, SDM 2007) watches each length as it comes. Windows of requests are compared with the reference by the
population stability index, against a limit that the reference's own unrest sets. An alarm needs both, the second three times in
a row. Tests of significance are not used: on unchanged traffic of the Azure trace a Kolmogorov-Smirnov test at 0.05 fires on most
windows, since no two minutes are alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from river.drift import ADWIN

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request
from reforward.traffic.psi import Deciles, Values, log2, own_noise

FEWEST, WINDOW, IN_A_ROW = 200, 500, 3
LEAST_PSI, NOISE_TIMES = 0.25, 1.5
"""A window is other when its index exceeds both 0.25 and 1.5 times the 99th percentile of the reference's own."""
DELTA = 1e-5
"""Confidence of ADWIN."""
LEAST_WINDOWS = 4
"""A reference has at least so many windows, or its own noise is not known."""

NEW = "new prompt"
"""Tokens of a prompt that no earlier request began with; watched where a trace knows prefixes."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One quantity of one window against the reference."""

    name: str
    psi: float
    limit: float
    times: float
    """How many times as long or short values are on average."""
    in_a_row: int
    """Windows above the limit so far, this one included."""
    triggered: bool
    """Whether ADWIN has seen a change of it."""

    @property
    def other(self) -> bool:
        """This window is above the limit."""
        return self.psi > self.limit


@dataclass(frozen=True, kw_only=True)
class Looked:
    """A whole window has come: what it was like, and whether that is an alarm."""

    requests: int
    """Seen since the reference."""
    measures: tuple[Measure, ...]

    @property
    def alarms(self) -> tuple[Measure, ...]:
        """Quantities that have shifted for certain."""
        return tuple(one for one in self.measures if one.triggered and one.in_a_row >= IN_A_ROW)

    @property
    def words(self) -> str:
        """One line for people."""
        told = ", ".join(f"{m.name} PSI {m.psi:.2f} (limit {m.limit:.2f}), x {m.times:.2f}" for m in self.measures)
        shifted = " and ".join(measure.name for measure in self.alarms)
        return f"after {self.requests} requests: {told}" + (f"; shifted: {shifted}" if shifted else "")


class _Watch:
    """One quantity of requests: reference, trigger, and windows in a row.

    The trigger learns the reference in random order. ADWIN forgets everything when it sees a change, so one that saw the last
    unrest of the reference, a few requests before a shift, would know the shifted traffic alone and find it usual.
    """

    def __init__(self, name: str, reference: Values, window: int) -> None:
        self.name, self._deciles = name, Deciles(reference)
        self.limit = max(LEAST_PSI, NOISE_TIMES * own_noise(reference, window))
        self._adwin, self._triggered, self._in_a_row = ADWIN(delta=DELTA), False, 0
        for value in np.random.default_rng(0).permutation(reference):
            self._adwin.update(float(value))

    def see(self, value: float) -> None:
        self._adwin.update(value)
        self._triggered = self._triggered or bool(self._adwin.drift_detected)

    def look(self, window: Values) -> Measure:
        psi = self._deciles.psi(window)
        self._in_a_row = self._in_a_row + 1 if psi > self.limit else 0
        return Measure(
            name=self.name,
            psi=psi,
            limit=self.limit,
            times=self._deciles.times(window),
            in_a_row=self._in_a_row,
            triggered=self._triggered,
        )


class Drift:
    """Watches requests one by one against a reference: the window that the current workload was distilled from."""

    def __init__(self, reference: Sequence[Request], window: int = WINDOW) -> None:
        if window < FEWEST:
            raise BadInput(
                f"a window of {window} requests says more about chance than about traffic; at least {FEWEST}"
            )
        if len(reference) < LEAST_WINDOWS * window:
            raise BadInput(
                f"a reference of {len(reference)} requests does not tell its own noise in windows of {window}: it needs "
                f"{LEAST_WINDOWS * window}; take smaller windows (at least {FEWEST}) or a longer reference"
            )
        self.window, self._seen = window, 0
        told = quantities(reference)
        if not any(request.reused_tokens for request in reference):
            del told[NEW]
        self._watches = [_Watch(name, values, window) for name, values in told.items()]
        self._waiting: list[Request] = []

    @property
    def limits(self) -> dict[str, float]:
        """The index that each quantity must exceed."""
        return {watch.name: watch.limit for watch in self._watches}

    def see(self, request: Request) -> Looked | None:
        """One more request; what its window was like if it completes one."""
        self._seen += 1
        self._waiting.append(request)
        values = quantities([request])
        for watch in self._watches:
            watch.see(float(values[watch.name][0]))
        if len(self._waiting) < self.window:
            return None
        found = quantities(self._waiting)
        self._waiting = []
        return Looked(requests=self._seen, measures=tuple(watch.look(found[watch.name]) for watch in self._watches))

    def watch(self, requests: Sequence[Request]) -> Iterator[Looked]:
        """All windows of a recorded stretch of traffic."""
        yield from (looked for looked in map(self.see, requests) if looked)


def quantities(requests: Sequence[Request]) -> dict[str, Values]:
    """What is watched, by name."""
    return {
        "prompt": log2([request.prompt_tokens for request in requests]),
        "output": log2([request.output_tokens for request in requests]),
        NEW: log2([request.prompt_tokens - request.reused_tokens for request in requests]),
    }
