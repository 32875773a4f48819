"""What a user chose for one command, before defaults are filled in by the house."""

from dataclasses import dataclass
from pathlib import Path

from reforward.domain.contract import Numerics
from reforward.domain.errors import BadInput

FEWEST_PAIRS, MOST_PAIRS = 4, 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """None means: let the house choose, and say what it chose."""

    traffic: Path | None = None
    """Trace file; the packaged slice if None."""
    min_gain: float = 0.01
    max_pairs: int = 16
    """Most pairs of launches of a confirmation. The gain that it can tell from none shrinks with their square root."""
    numerics: Numerics | None = None
    length_scale: float | None = None
    requests: int = 6
    """Requests in the distilled workload."""
    threads: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_gain < 10:
            raise BadInput(f"--min-gain must lie in [0, 10), where 0.01 is 1 %, got {self.min_gain}")
        if not FEWEST_PAIRS <= self.max_pairs <= MOST_PAIRS:
            raise BadInput(f"--max-pairs must lie between {FEWEST_PAIRS} and {MOST_PAIRS}, got {self.max_pairs}")
        if self.requests < 1:
            raise BadInput(f"--requests must be at least 1, got {self.requests}")
        if self.length_scale is not None and not 0 < self.length_scale <= 1:
            raise BadInput(f"--length-scale must lie in (0, 1], got {self.length_scale}")
        if self.threads is not None and self.threads < 1:
            raise BadInput(f"--threads must be at least 1, got {self.threads}")
