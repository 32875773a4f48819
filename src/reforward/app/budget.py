"""How long a run may go on: seconds, candidates, or both."""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reforward.domain.errors import BadInput
from reforward.domain.measurement import Sample
from reforward.domain.ports import Stopping

SEARCH_SHARE = 0.6
"""Share of the seconds that may go into screening before the best candidates must be confirmed."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of one run; None means unlimited."""

    seconds: float | None = None
    candidates: int | None = None
    """Candidates screened at the fast tier."""
    screening_share: float = SEARCH_SHARE
    """Share of the seconds after which no further candidate is screened; 1 where each is confirmed at once."""

    def __post_init__(self) -> None:
        if self.seconds is None and self.candidates is None:
            raise BadInput("a run needs a budget: pass --budget 10m or --candidates 20")
        if any(limit is not None and limit <= 0 for limit in (self.seconds, self.candidates)):
            raise BadInput(f"a budget must be positive, got {self!r}")

    def screening_over(self, elapsed_s: float, screened: int) -> bool:
        """No further candidate may be screened."""
        late = self.seconds is not None and elapsed_s >= self.screening_share * self.seconds
        return late or (self.candidates is not None and screened >= self.candidates)

    def left(self, elapsed_s: float) -> float:
        """Seconds that remain; infinite without a limit of time."""
        return math.inf if self.seconds is None else self.seconds - elapsed_s

    def over(self, elapsed_s: float) -> bool:
        """Nothing more may be started."""
        return self.seconds is not None and elapsed_s >= self.seconds


def parse_seconds(text: str) -> float:
    """`90s`, `10m`, `1.5h` as seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not match:
        raise BadInput(f"budget {text!r} is not a duration; write a number and s, m or h, such as 10m")
    return float(match[1]) * _UNITS[match[2]]


class InTime:
    """A stopping rule that also ends a session when the run's time is up, whatever the samples say.

    The end does not depend on the samples, so it takes nothing from the error budget; such a session is `undecided`
    unless it has been decided before.
    """

    def __init__(self, rule: Stopping, seconds: float) -> None:
        self.rule, self.until = rule, time.monotonic() + seconds

    def observe(self, samples: Sequence[Sample]) -> Literal["continue", "stop"]:
        """Asked after each completed pair of launches."""
        return "stop" if time.monotonic() >= self.until else self.rule.observe(samples)
