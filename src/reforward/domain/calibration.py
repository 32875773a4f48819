"""How noisy a machine is: what sessions of identical code on both sides look like there."""

from dataclasses import dataclass
from typing import ClassVar

from reforward.domain.record import Record
from reforward.domain.subject import Tier


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Spread of pairs of launches of identical code, in logarithms of speed."""

    deviation: float
    """Standard deviation of one pair's effect."""
    freedom: int
    """Degrees of freedom that it was estimated with: pairs minus one."""


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """What one step of a forward cannot beat, of the memory that holds the weights."""

    read_bytes_s: float
    """Bytes per second, the best pass."""
    cache_bytes: int
    """So much may stay near the processor from step to step, and need not be read."""


@dataclass(frozen=True, kw_only=True)
class Calibration(Record):
    """What one A/A session, and a reading of the memory, told about a target."""

    tag: ClassVar[str] = "calibration"

    tier: Tier
    target: str
    workload: str
    measurement: str
    """The A/A session."""
    noise: Noise
    bias: float
    """Mean effect of its pairs: how far from zero identical code came out, in logarithms of speed."""
    pair_s: float
    """Seconds that one pair took, launches and checks included."""
    read_bytes_s: float
    """Read bandwidth of the memory that holds the weights, bytes per second; on a CPU with the threads of the target."""
    cache_bytes: int
    """See `Bandwidth`."""
    made_at: str
    """UTC, ISO 8601."""
