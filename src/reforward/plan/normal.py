"""The normal distribution, from the standard library."""

from statistics import NormalDist

_STANDARD = NormalDist()


def at_share(share: float) -> float:
    """Deviations below which this share lies."""
    return _STANDARD.inv_cdf(share)


def share_below(deviations: float) -> float:
    """Share that lies below."""
    return _STANDARD.cdf(deviations)
