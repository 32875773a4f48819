"""Whether outputs are those of the same mathematics.

`bit-exact` compares bytes with the stock's on the same calls. `reassociated` compares the candidate's error against a
float64 oracle with the stock forward's own error on the same inputs: in the mean, in the worst element, row by row
(a single wrong row or head must not hide in an average), in KL divergence and in top-1 choices. Where only the stock
was computed, the triangle inequality bounds the distance between the two. No limit is absolute, but for the rounding
of the output type itself: half a unit in the last place at the scale of the row.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reforward.domain.contract import Contract
from reforward.domain.verdict import Finding
from reforward.judge.arrays import Real, Rows
from reforward.judge.errors import Errors, errors, joined

BLIND_ULPS = 8.0
"""Assumed error of the stock where no oracle could be computed at all, in half units in the last place."""


def bit_findings(rows: Sequence[Rows]) -> tuple[Finding, ...]:
    """Share of elements whose bits differ from the stock's."""
    differing = sum(int((_bits(part.candidate) != _bits(part.stock)).sum()) for part in rows)
    share = differing / max(1, sum(part.stock.size for part in rows))
    return (Finding(check="bits", value=share, limit=0.0, passed=differing == 0),)


def oracle_findings(rows: Sequence[Rows], contract: Contract) -> tuple[Finding, ...]:
    """All rules of `reassociated` over the rows of one group."""
    found = joined([errors(part) for part in rows])
    judged = ~np.isnan(found.stock_rms)
    noise = _noise(found, judged)
    made = list(_far(found, noise, contract))
    if judged.any():
        made += _close(found, judged, noise, contract)
    if not np.isnan(found.stock_kl).all():
        made += _choices(found, contract)
    return tuple(made)


def _noise(found: Errors, judged: NDArray[np.bool_]) -> float:
    """The stock's own RMS error, pooled over rows; never less than the rounding of the output."""
    floor = _pool(found.rounding)
    if not judged.any():
        return BLIND_ULPS * floor
    return max(_pool(found.stock_rms[judged]), floor)


def _far(found: Errors, noise: float, contract: Contract) -> tuple[Finding, ...]:
    """Distance between candidate and stock, whole and row by row: what both errors together allow."""
    whole = _pool(found.distance) / noise
    row = float((found.distance / np.maximum(noise, found.rounding)).max())
    return (
        _at_most("distance from stock", whole, 1 + contract.error_ratio),
        _at_most("distance of worst row", row, 1 + contract.worst_ratio),
    )


def _close(found: Errors, judged: NDArray[np.bool_], noise: float, contract: Contract) -> tuple[Finding, ...]:
    """Error against the oracle over the stock's own."""
    ours, theirs = found.candidate_rms[judged], found.stock_rms[judged]
    typical = max(float(np.median(theirs)), _pool(found.rounding))
    peak = float((found.rounding / np.maximum(found.scale, 1e-300) * found.peak)[judged].max())
    worst = max(float(found.stock_worst[judged].max()), peak, 1e-300)
    return (
        _at_most("error against oracle", _pool(ours) / noise, contract.error_ratio),
        _at_most("worst element", float(found.candidate_worst[judged].max()) / worst, contract.worst_ratio),
        _at_most("worst row", float((ours / np.maximum(theirs, typical)).max()), contract.worst_ratio),
    )


def _choices(found: Errors, contract: Contract) -> tuple[Finding, ...]:
    """KL divergence and top-1 choices. A choice between logits closer than the stock's worst error is a tie."""
    logits = ~np.isnan(found.stock_kl)
    floor = _pool(found.rounding[logits]) ** 2
    kl = float(found.candidate_kl[logits].mean()) / max(float(found.stock_kl[logits].mean()), floor, 1e-300)
    tie = 2 * float(found.stock_worst[logits].max())
    lost = float((found.candidate_gap[logits] > tie).mean() - (found.stock_gap[logits] > tie).mean())
    return (
        _at_most("KL divergence", kl, contract.kl_ratio),
        _at_most("top-1 choices lost", lost, contract.top1_slack),
    )


def _at_most(check: str, value: float, limit: float) -> Finding:
    return Finding(check=check, value=min(value, 1e300), limit=limit, passed=value <= limit)


def _pool(values: Real) -> float:
    return max(float(np.sqrt(np.square(values).mean())), 1e-300)


def _bits(values: Real) -> NDArray[np.int64]:
    """NaN as one value, so that equal masks compare equal; -0.0 and 0.0 differ."""
    return np.where(np.isnan(values), np.nan, values).view(np.int64)
