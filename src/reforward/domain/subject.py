"""What is compiled: the weights, the stock forward, and how the fast tier truncates it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from reforward.domain.record import Record

Host = Literal["lm", "module"]
Tier = Literal["fast", "slow"]


@dataclass(frozen=True, kw_only=True)
class Subject(Record):
    """One model as the loop sees it. Files and folders that it was loaded from are not part of its identity."""

    tag: ClassVar[str] = "subject"

    name: str
    host: Host
    weights: str
    """Content hash of all weight bytes, in vault order, with their names, types and shapes."""
    stock: str
    """Id of the stock candidate: the incumbent of the first turn and the reference of every turn."""
    spec: str
    """Canonical JSON of the architecture (lm: `ModelSpec`; module: class and constructor notes)."""
    dtype: str
    """Type of the weights as served: float32, bfloat16, or mixed."""
    depth: int
    """Layers of the whole model; 1 where layers have no meaning."""
    fast_depth: int
    """Layers that the fast tier runs."""

    def depth_of(self, tier: Tier) -> int:
        """Layers that `tier` runs."""
        return self.fast_depth if tier == "fast" else self.depth
