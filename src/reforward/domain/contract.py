"""What must stay true, and the gain that counts. The only place where thresholds live."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from reforward.domain.errors import BadInput
from reforward.domain.record import Record
from reforward.domain.subject import Tier

Numerics = Literal["bit-exact", "reassociated"]


@dataclass(frozen=True, kw_only=True)
class Contract(Record):
    """Limits that a verdict is ruled under; hashed into every verdict."""

    tag: ClassVar[str] = "contract"

    numerics: Numerics
    """`bit-exact`: same bits. `reassociated`: same mathematics, another summation order."""
    min_gain: float = 0.01
    """The smallest relative gain worth admitting: 0.01 is one per cent more work per second."""
    alpha: float = 0.05
    """Chance of one false accept that a whole run may spend, over all its candidates and looks."""
    min_pairs: int = 4
    """Pairs of fresh launches before any accept."""
    max_pairs: int = 16
    """Pairs after which an undecided session is ruled `unsure`."""
    fast_pairs: int = 6
    """The same at the fast tier, which only ranks."""
    fast_alpha: float = 0.002
    """Chance that one fast session calls equally fast code promising: that costs a slow session and admits nothing."""
    resolution: float = 0.08
    """Gain that the fast tier is meant to see; below half of it nothing is called promising."""
    error_ratio: float = 2.0
    """A typical row's RMS error against the oracle, over the stock forward's own on the same inputs."""
    worst_ratio: float = 8.0
    """Worst row's and worst element's error against the oracle, over the stock forward's own worst."""
    cluster_ratio: float = 3.0
    """A typical row's error in any sixteenth of its elements, or in any quarter of the positions, over the stock's own there."""
    kl_ratio: float = 4.0
    """A typical row's KL divergence from the oracle, over the stock forward's own."""
    top1_slack: float = 0.002
    """Share of positions by which top-1 agreement with the oracle may fall below the stock forward's."""
    extra_memory: float = 1.25
    """Bytes that a candidate may use beyond the incumbent (packed, state, private), in units of the weights."""
    most_crowded: float = 0.1
    """Share of a worker's processors that others may have during a session; above it, times say nothing about the code."""
    memory_slack: int = 64 << 20
    """Bytes by which two processes may differ for reasons of their allocators; counted before `extra_memory`."""
    max_build_s: float = 600.0
    """Deadline of the build stage and of packing, seconds each."""
    max_step_s: float = 60.0
    """Deadline of one answer from a worker, seconds."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or not 0 < self.fast_alpha < 1:
            raise BadInput(f"alpha and fast_alpha must lie in (0, 1), got {self.alpha} and {self.fast_alpha}")
        if not 0 <= self.min_gain < 10:
            raise BadInput(f"min_gain must lie in [0, 10), got {self.min_gain}")
        if self.fast_pairs < 2 or not 0 < self.resolution < 10:
            raise BadInput(
                f"fast_pairs must be at least 2, resolution in (0, 10), got {self.fast_pairs}, {self.resolution}"
            )
        if not 2 <= self.min_pairs <= self.max_pairs:
            raise BadInput(f"2 <= min_pairs <= max_pairs is needed, got {self.min_pairs} and {self.max_pairs}")

    def pairs_at(self, tier: Tier) -> int:
        """Most pairs of launches in one session at `tier`."""
        return self.fast_pairs if tier == "fast" else self.max_pairs
