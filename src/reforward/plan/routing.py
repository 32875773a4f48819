"""How tokens spread over experts: what decides which weights are read at decode and which rank is last at prefill."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Routing:
    """Share of all (token, expert) pairs by expert, largest first; sums to 1."""

    shares: Array

    @classmethod
    def counted(cls, tokens_per_expert: Array) -> "Routing":
        """From a histogram of real traffic."""
        counts = np.asarray(tokens_per_expert, dtype=np.float64)
        if counts.ndim != 1 or not len(counts) or (counts < 0).any() or counts.sum() <= 0:
            raise BadInput("tokens per expert must be a list of counts, none negative and not all 0")
        return cls(np.sort(counts)[::-1] / counts.sum())

    @classmethod
    def zipf(cls, experts: int, exponent: float) -> "Routing":
        """The share of the r-th expert falls with r to the minus `exponent`; 0: balanced."""
        shares = np.arange(1, experts + 1, dtype=np.float64) ** -exponent
        return cls(shares / shares.sum())

    @property
    def skew(self) -> float:
        """The Zipf exponent whose shares have the same entropy: one number that tables of skewed routing are read by."""
        wanted = self._entropy(self.shares)
        low, high = 0.0, 3.0
        for _ in range(30):
            middle = (low + high) / 2
            flatter = self._entropy(Routing.zipf(len(self.shares), middle).shares) > wanted
            low, high = (middle, high) if flatter else (low, middle)
        return round(low, 6) if low > 1e-6 else 0.0

    @staticmethod
    def _entropy(shares: Array) -> float:
        used = shares[shares > 0]
        return float(-(used * np.log(used)).sum())

    def touched(self, tokens: Array, top_k: int) -> Array:
        """Experts that at least one of so many tokens is sent to, of all experts."""
        chance = np.minimum(self.shares * top_k, 1.0)
        counts, which = np.unique(np.asarray(tokens, dtype=np.float64), return_inverse=True)
        hit = (1.0 - (1.0 - chance) ** counts[:, None]).sum(axis=-1)
        return hit[which].reshape(np.shape(tokens))

    def busiest(self, ranks: int) -> float:
        """Load of the busiest of `ranks` groups of experts over the mean, experts dealt out like cards, largest first."""
        groups = [float(self.shares[start::ranks].sum()) for start in range(ranks)]
        return max(groups) * ranks
