"""A canary beside an equal part for the incumbent, and the rule that ends it. No tolerance of its own: limits are the contract's.

Argo Rollouts' three outcomes: success is promoted, failure is rolled back, and what stays inconclusive is not promoted.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass

from reforward.domain.contract import Contract
from reforward.domain.deployment import Outcome
from reforward.domain.verdict import Finding
from reforward.serve.lane import Lane
from reforward.serve.sequence import Notes, Piece, Sequence

LOOKS = 8
"""Answers of each arm that the incumbent looks at again."""
EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
ROUNDING = 32.0
"""Size of logits whose last bit counts as no difference at all."""
FEWEST = 6
"""Requests of an arm whose median has a 95 % interval at all."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a candidate comes into service."""

    requests: int = 20
    """Of each arm that must end before it is promoted."""
    seconds: float = 600.0
    """After so long without a decision it is inconclusive."""
    mirror: bool = False
    """Shadow: the canary is given copies of requests, whose answers are looked at and discarded."""


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What came of a trial."""

    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...] = ()


class Trial:
    """A canary under way. Driven by the driver's thread: every other new request goes to the canary, the ones between are the
    control.
    """

    def __init__(self, policy: Policy, contract: Contract, dtype: str) -> None:
        self.policy, self.contract, self.dtype = policy, contract, dtype
        self.given = 0
        self.notes: dict[str, list[Notes]] = {"canary": [], "control": []}
        """Of answers that ended and came from one candidate alone."""
        self.apart: dict[str, list[float]] = {"canary": [], "control": []}
        """Distances between log-probabilities as served and as the incumbent sees them."""
        self.looked = {"canary": 0, "control": 0}
        self.queue: list[Sequence] = []
        self.under: tuple[Sequence, Iterator[list[float]], list[float]] | None = None
        self.harmed = 0
        """Answers of the canary that had to be begun anew elsewhere."""
        self.ended_by: Ruling | None = None

    def assign(self, sequence: Sequence) -> Sequence | None:
        """Give a new sequence its arm; with `mirror`, returns a copy for the canary."""
        if min(len(self.notes["canary"]), len(self.notes["control"])) >= self.policy.requests or self.ended_by:
            return None
        self.given += 1
        if self.policy.mirror:
            sequence.notes = Notes(arm="control")
            return sequence.twin(deliver=_discard, notes=Notes(arm="canary"))
        sequence.notes = Notes(arm="canary" if self.given % 2 else "control")
        return None

    def ended(self, sequence: Sequence) -> None:
        """Count an answer if its arm served all of it, and have the incumbent look at it again."""
        notes = sequence.notes
        if notes is None or sequence.reason not in ("stop", "length"):
            return
        if sequence.moves and notes.arm == "canary":
            self.harmed += 1
        if sequence.moves or notes.candidate == "mixed":
            return
        self.notes[notes.arm].append(notes)
        if self.looked[notes.arm] < LOOKS and self.ended_by is None:
            self.looked[notes.arm] += 1
            self.queue.append(sequence)

    @property
    def looking(self) -> bool:
        """There are answers to look at."""
        return bool(self.queue or self.under)

    def look(self, incumbent: Lane) -> None:
        """One call of looking at an answer again."""
        if self.under is None:
            if not self.queue:
                return
            sequence = self.queue.pop(0)
            tokens = (*sequence.prompt, *sequence.produced)
            self.under = (sequence, incumbent.again(tokens, len(sequence.prompt)), [])
        sequence, again, found = self.under
        part = next(again, None)
        if part is not None:
            found += part
            return
        self.under = None
        assert sequence.notes is not None
        pairs = zip(sequence.notes.logprobs, found, strict=True)
        self.apart[sequence.notes.arm] += [abs(served - seen) for served, seen in pairs]

    def end(self, outcome: Outcome, reason: str) -> None:
        """A worker of either arm is gone."""
        self.ended_by = self.ended_by or Ruling(outcome=outcome, reason=reason)
        self.queue.clear()
        self.under = None  # what was being looked at is in the hands of a worker that may be gone

    def ruling(self, *, memory: int, incumbent_memory: int, weights: int, late: bool) -> Ruling | None:
        """The decision, or None while it is open. Memory: bytes of a worker beyond what all share."""
        if self.ended_by is not None:
            return self.ended_by
        ceiling = incumbent_memory + self.contract.extra_memory * weights + self.contract.memory_slack
        findings = [Finding(check="memory", value=memory, limit=ceiling, passed=memory <= ceiling)]
        counted = min(len(self.notes["canary"]), len(self.notes["control"]))
        enough = counted >= self.policy.requests and not self.looking
        if counted >= FEWEST:
            findings.append(self._latency())
        if self.apart["canary"] and self.apart["control"] and enough:
            findings += self._divergence()
        wrong = [finding for finding in findings if not finding.passed]
        if wrong:
            words = "; ".join(f"{one.check} {one.value:.4g} is over {one.limit:.4g}" for one in wrong)
            return Ruling(outcome="rolled-back", reason=words, findings=tuple(findings))
        if enough:
            return Ruling(outcome="promoted", reason="as good as the control", findings=tuple(findings))
        if late:
            words = f"{counted} of {self.policy.requests} requests of each arm within {self.policy.seconds:g} s"
            return Ruling(outcome="inconclusive", reason=words, findings=tuple(findings))
        return None

    def _latency(self) -> Finding:
        """Seconds of a decode call over the control's median with as many answers in it, for each request its median.

        Slower if the whole 95 % interval of the canary lies above the control's by the contract's resolution: two launches of
        the same code differ by some of it.
        """
        usual = {width: statistics.median(seconds) for width, seconds in _by_width(self.notes["control"]).items()}
        canary, control = (_interval(_relative(self.notes[arm], usual)) for arm in ("canary", "control"))
        limit = control[1] * (1 + self.contract.resolution)
        return Finding(check="latency", value=canary[0], limit=limit, passed=canary[0] <= limit)

    def _divergence(self) -> list[Finding]:
        """From the incumbent, against the incumbent's own from itself when it stores an answer at once.

        Two forwards within the contract's ratio of the stock's error lie within one more of each other.
        """
        canary, control = self.apart["canary"], self.apart["control"]
        least = ROUNDING * EPSILON.get(self.dtype, EPSILON["bfloat16"])
        found: list[Finding] = []
        for name, of, ratio in (
            ("typical", _rms, self.contract.error_ratio),
            ("worst", max, self.contract.worst_ratio),
        ):
            limit = (ratio + 1) * max(of(control), least)
            found.append(Finding(check=f"{name} divergence", value=of(canary), limit=limit, passed=of(canary) <= limit))
        return found


def _by_width(notes: Many[Notes]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for width, seconds in (decode for one in notes for decode in one.decodes):
        found.setdefault(width, []).append(seconds)
    return found


def _relative(notes: Many[Notes], usual: Mapping[int, float]) -> list[float]:
    """Of each request that took part in calls of a width that is known."""
    each = ([seconds / usual[width] for width, seconds in one.decodes if width in usual] for one in notes)
    return [statistics.median(ratios) for ratios in each if ratios]


def _rms(values: Many[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))


def _interval(values: Many[float]) -> tuple[float, float]:
    """Order statistics that cover the median with at least 95 %; nothing is known of fewer than `FEWEST`."""
    ordered, count = sorted(values), len(values)
    if count < FEWEST:
        return 0.0, math.inf
    below, rank = 0.0, 0
    while (below := below + math.comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    return ordered[rank - 1], ordered[count - rank]


def _discard(piece: Piece) -> None:
    """The answer of a copy is told to nobody."""
