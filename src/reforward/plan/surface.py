"""Measured times between measured shapes: neighbours in log space, each by its own ratio to the roofline."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NEAR = 8
"""Neighbours that a query is made of."""
SHARPNESS = 3.0
"""Weight of a neighbour: distance to the minus this."""


@dataclass(frozen=True)
class Surface:
    """Log of measured time over roofline, by log2 of the sizes; sizes have weights so that near means alike."""

    tree: Any
    ratios: Array
    weights: Array

    @classmethod
    def of(cls, sizes: Array, seconds: Array, roofline: Array, weights: tuple[float, ...]) -> "Surface":
        """From rows of sizes (n, d), measured seconds (n,) and the roofline's seconds for the same (n,)."""
        from scipy import spatial

        scale = np.asarray(weights)
        kept = (seconds > 0) & (roofline > 0)
        places = np.log2(np.maximum(sizes[kept], 0.5)) * scale
        tree: Any = getattr(spatial, "KDTree")(places)  # noqa: B009 - its types are not told
        return cls(tree, np.log(seconds[kept] / roofline[kept]), scale)

    def seconds(self, sizes: Array, roofline: Array) -> Array:
        """Seconds of shapes (n, d) whose roofline is known (n,)."""
        places = np.log2(np.maximum(sizes, 0.5)) * self.weights
        far, which = self.tree.query(places, k=min(NEAR, len(self.ratios)))
        weight = 1.0 / np.maximum(far, 1e-3) ** SHARPNESS
        weight /= weight.sum(axis=-1, keepdims=True)
        return roofline * np.exp((weight * self.ratios[which]).sum(axis=-1))
