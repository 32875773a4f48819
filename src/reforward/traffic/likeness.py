"""How alike two bodies of traffic are: an energy distance over prompt, output, company and reuse together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reforward.domain.workload import Request

Points = NDArray[np.float64]
"""Requests as rows: log2 prompt tokens, log2 output tokens, log2 requests in flight, share of the prompt that is reused."""
AXES = ("prompt", "output", "company", "reuse")
ROUNDING = 1e-9
"""A deviation below it is rounding of equal values."""
MOST_POINTS = 1500
"""Of a larger body every so many-th request is taken: distances cost the square."""


def points(requests: Sequence[Request]) -> Points:
    """Shape [n, 4]."""
    rows = [
        (r.prompt_tokens, r.output_tokens, max(1, r.in_flight), 2.0 ** (r.reused_tokens / r.prompt_tokens))
        for r in requests
    ]
    return np.log2(np.array(rows, dtype=np.float64).reshape(-1, len(AXES)))


class Scale:
    """Axes made comparable: each divided by its deviation in a reference; an axis that does not vary there counts as it is."""

    def __init__(self, reference: Points) -> None:
        spread = reference.std(axis=0)
        self._per_axis = np.where(spread > ROUNDING, spread, 1.0)

    def __call__(self, found: Points) -> Points:
        """The same points in deviations of the reference."""
        return found / self._per_axis


class Body:
    """Traffic that other traffic is compared with."""

    def __init__(self, found: Points) -> None:
        self._points = thin(found)
        self._within = float(gaps(self._points, self._points).mean())

    def energy(self, other: Points, weights: Sequence[float] | None = None) -> float:
        """Energy distance (Székely and Rizzo, 2013) of weighted points from this body: 0 only if they are distributed alike.

        `2 E|X-Y| - E|X-X'| - E|Y-Y'|`, in the units of the axes.
        """
        shares = np.full(len(other), 1.0) if weights is None else np.array(weights, dtype=np.float64)
        shares = shares / shares.sum()
        between = float(shares @ gaps(other, self._points).mean(axis=1))
        within = float(shares @ gaps(other, other) @ shares)
        return max(0.0, 2 * between - within - self._within)


def gaps(a: Points, b: Points) -> Points:
    """Euclidean distances, shape [len(a), len(b)]."""
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2 * a @ b.T
    return np.sqrt(np.maximum(squares, 0.0))


def thin(found: Points) -> Points:
    """At most `MOST_POINTS`, evenly over the rows."""
    if len(found) <= MOST_POINTS:
        return found
    return found[np.linspace(0, len(found) - 1, MOST_POINTS).astype(int)]
