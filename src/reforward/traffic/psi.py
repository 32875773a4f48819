"""Two distances between a window and a reference: one that alarms, one that says how far in words."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BINS = 10
LEAST_SHARE = 1e-4
"""Of a bin without requests: a share of zero would make the index infinite."""

Values = NDArray[np.float64]


class Deciles:
    """Ten bins that a reference fills evenly. Bins that ties leave empty are joined with their neighbours."""

    def __init__(self, reference: Values) -> None:
        edges = np.unique(np.quantile(reference, np.arange(1, BINS) / BINS))
        self._edges = edges
        self._reference = np.sort(reference)
        self._expected = self._shares(reference)

    def psi(self, window: Values) -> float:
        """Population stability index: the sum over bins of (a - e) ln(a / e); symmetric, 0 for equal shares."""
        actual, expected = self._shares(window), self._expected
        return float(((actual - expected) * np.log(actual / expected)).sum())

    def times(self, window: Values) -> float:
        """Wasserstein distance of values in log2, as a factor: 2 means that lengths differ twofold on average."""
        at = (np.arange(len(window)) + 0.5) / len(window)
        return 2.0 ** float(np.abs(np.sort(window) - np.quantile(self._reference, at)).mean())

    def _shares(self, values: Values) -> Values:
        counts = np.bincount(np.searchsorted(self._edges, values, side="left"), minlength=len(self._edges) + 1)
        return np.maximum(counts / len(values), LEAST_SHARE)


def own_noise(reference: Values, window: int, strides: int = 10) -> float:
    """99th percentile of the index of windows of the reference itself, each against the rest of it.

    Windows are consecutive requests, as those that will be judged: real traffic changes from minute to minute without any
    change of what it is, and independent draws would miss that. They overlap, `strides` to a window's length.
    """
    found: list[float] = []
    for start in range(0, len(reference) - window + 1, max(1, window // strides)):
        rest = np.concatenate((reference[:start], reference[start + window :]))
        found.append(Deciles(rest).psi(reference[start : start + window]))
    return float(np.percentile(found, 99))


def log2(counts: Sequence[int]) -> Values:
    """Token counts on a scale where a factor is a distance; a count of 0 as -1."""
    return np.array([math.log2(count) if count > 0 else -1.0 for count in counts])
