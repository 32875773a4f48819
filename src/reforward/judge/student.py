"""Student's t distribution for whole degrees of freedom, without a statistics library.

The distribution function is the finite sum of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3-4.
"""

import math
from functools import cache


def upper_tail(t: float, df: int) -> float:
    """P(T > t) for t >= 0."""
    theta = math.atan(t / math.sqrt(df))
    cosine, sine = math.cos(theta), math.sin(theta)
    first = 2 if df % 2 else 1
    term = cosine if df % 2 else 1.0
    total = term if df > 1 else 0.0
    for k in range(first, df - 1, 2):
        term *= cosine**2 * k / (k + 1)
        total += term
    inside = 2 / math.pi * (theta + sine * total) if df % 2 else sine * total
    return (1 - inside) / 2


@cache
def quantile(tail: float, df: int) -> float:
    """The t with P(T > t) = `tail`, for 1e-12 <= tail <= 0.5; by bisection, to ten digits."""
    assert df >= 1, df
    assert 1e-12 <= tail <= 0.5, tail
    low, high = 0.0, 1.0
    while upper_tail(high, df) > tail:
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, df) > tail else (low, middle)
    return high
