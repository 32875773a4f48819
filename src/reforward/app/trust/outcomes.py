"""What a selftest of the judge found: an outcome per case, and the sum of them."""

from dataclasses import dataclass

from reforward.app.trust.catches import Layer
from reforward.domain.subject import Host


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one case."""

    case: str
    host: Host
    expected: str
    """`hostile`, `honest`, or `identical` for a session of two arms of the same code."""
    about: str
    ruling: str
    """The verdict's, or `skipped`, or `lost` if the engine went down."""
    reason: str
    layer: Layer
    detail: str
    held: bool
    """The judge did what the case asks for; true for what was skipped."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole selftest."""

    outcomes: tuple[Outcome, ...]
    not_run: tuple[str, ...]
    """What this selftest leaves open, a line each."""
    seconds: float

    def count(self, expected: str) -> tuple[int, int]:
        """How many of a kind held, and how many were run."""
        ran = [outcome for outcome in self.outcomes if outcome.expected == expected and outcome.ruling != "skipped"]
        return sum(outcome.held for outcome in ran), len(ran)

    @property
    def held(self) -> bool:
        """All of it."""
        return all(outcome.held for outcome in self.outcomes)

    def headline(self) -> str:
        """`caught H/H, honest kept K/K, false accepts in A/A x/y`."""
        (caught, hostile), (kept, honest), (quiet, pairs) = map(self.count, ("hostile", "honest", "identical"))
        return f"caught {caught}/{hostile}, honest kept {kept}/{honest}, false accepts in A/A {pairs - quiet}/{pairs}"
