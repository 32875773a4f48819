"""Whether outputs are those of the same mathematics.

`bit-exact` compares bytes with the stock's on the same calls. `reassociated` compares the candidate's error against a
float64 oracle with the stock forward's own error on the same inputs. How much rounding a row gathers has a heavy tail
(a few rows in a hundred have several times the error of the others, in either forward), so the whole is judged by the
typical row, a geometric mean of ratios, and the tail by the worst row and element against the stock's worst: a single
wrong row or head does not hide in an average, and a rare honest one does not decide it. Errors that gather, in a stretch of
the rows or in some positions, are looked for apart. In the mean a ratio below 1 counts
as 1, so that rows that are better than the stock's pay for no others. KL divergence and top-1 choices come on top. Where
only the stock was computed, the triangle inequality bounds the distance between the two. No limit is absolute, but for the
rounding of the output type itself: half a unit in the last place at the scale of the row.

What errors gather by need not be known: the worst quarter of the rows and the worst sixteenth of the vocabulary are whatever is
worst, be it rare tokens, one slot, or every third step.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from reforward.domain.contract import Contract
from reforward.domain.verdict import Finding
from reforward.judge.arrays import Floats, Real, Rows
from reforward.judge.errors import BLOCKS, LEAST_WIDTH, TINY, Errors, columns, errors, joined

BLIND_ULPS = 8.0
"""Assumed error of the stock where no oracle could be computed at all, in half units in the last place."""
LEAST_ROWS = 8
"""Rows whose typical error is told; of fewer, one with a heavy tail would decide."""
ENOUGH_ROWS = 24
"""Rows of which the worst part is told: of fewer, chance alone makes some part bad."""
QUARTERS = 4


def bit_findings(rows: Sequence[Rows]) -> tuple[Finding, ...]:
    """Share of elements whose bits differ from the stock's."""
    differing = sum(int((_bits(part.candidate) != _bits(part.stock)).sum()) for part in rows)
    share = differing / max(1, sum(part.stock.size for part in rows))
    return (Finding(check="bits", value=share, limit=0.0, passed=differing == 0),)


def oracle_findings(rows: Sequence[Rows], contract: Contract) -> tuple[Finding, ...]:
    """All rules of `reassociated` over the rows of one group."""
    found = joined([errors(part) for part in rows])
    judged = ~np.isnan(found.stock_rms)
    made = list(_far(found, judged, contract))
    if judged.any():
        made += [*_close(found, judged, contract), *_clusters(found, judged, contract), *_scattered(rows, contract)]
    if not np.isnan(found.stock_kl).all():
        made += _choices(found, contract)
    return tuple(made)


def _far(found: Errors, judged: NDArray[np.bool_], contract: Contract) -> tuple[Finding, ...]:
    """Distance between candidate and stock: what both errors together allow, for a typical row and for the worst."""
    noise = found.stock_rms[judged] if judged.any() else BLIND_ULPS * found.rounding
    noise = np.maximum(noise, np.median(found.rounding))
    typical = _typical(found.distance / _middle(noise))
    worst = float(found.distance.max()) / max(float(noise.max()), float(found.rounding.max()), TINY)
    return (
        _at_most("typical distance from stock", typical, 1 + contract.error_ratio),
        _at_most("worst distance from stock", worst, 1 + contract.worst_ratio),
    )


def _close(found: Errors, judged: NDArray[np.bool_], contract: Contract) -> tuple[Finding, ...]:
    """Error against the oracle over the stock's own."""
    floor = np.maximum(found.rounding[judged], TINY)
    ours, theirs = np.maximum(found.candidate_rms[judged], floor), np.maximum(found.stock_rms[judged], floor)
    peak = floor * found.peak[judged] / np.maximum(found.scale[judged], TINY)
    least = max(float(found.stock_worst[judged].max()), float(peak.max()))
    return (
        _at_most("typical error", _typical(ours / theirs), contract.error_ratio),
        _at_most("worst row", float(ours.max() / theirs.max()), contract.worst_ratio),
        _at_most("worst element", float(found.candidate_worst[judged].max()) / least, contract.worst_ratio),
    )


def _clusters(found: Errors, judged: NDArray[np.bool_], contract: Contract) -> Iterator[Finding]:
    """Errors that gather: in one stretch of the rows, or in rows of some positions. An average over all would hide them."""
    floor = np.maximum(found.rounding, TINY)
    ratios = np.maximum(found.candidate_rms, floor) / np.maximum(found.stock_rms, floor)
    broad = judged & ~np.isnan(found.stock_blocks).any(axis=1)
    if broad.sum() >= LEAST_ROWS:
        least = floor[broad, None]
        blocks = np.maximum(found.candidate_blocks[broad], least) / np.maximum(found.stock_blocks[broad], least)
        worst = max(_typical(blocks[:, block]) for block in range(blocks.shape[1]))
        yield _at_most("errors gathered in a stretch of the row", worst, contract.cluster_ratio)
    if judged.sum() >= ENOUGH_ROWS:
        most = max(LEAST_ROWS, int(judged.sum()) // QUARTERS)
        worst = _typical(np.sort(ratios[judged])[-most:])
        yield _at_most("errors gathered in some rows", worst, contract.cluster_ratio)
    placed = np.flatnonzero(judged & ~np.isnan(found.position))
    if (parts := min(QUARTERS, len(placed) // LEAST_ROWS)) > 1:
        ordered = placed[np.argsort(found.position[placed], kind="stable")]
        worst = max(_typical(ratios[part]) for part in np.array_split(ordered, parts))
        yield _at_most("errors gathered in positions", worst, contract.cluster_ratio)


def _scattered(rows: Sequence[Rows], contract: Contract) -> Iterator[Finding]:
    """Errors that gather in some elements of all rows, wherever those lie."""
    found = columns(rows)
    if found is None or len(found[0]) < BLOCKS * LEAST_WIDTH or found[1] < ENOUGH_ROWS:
        return
    worst = np.sort(found[0])[-(len(found[0]) // BLOCKS) :]
    yield _at_most("errors gathered in a part of the vocabulary", _typical(worst), contract.cluster_ratio)


def _choices(found: Errors, contract: Contract) -> tuple[Finding, ...]:
    """KL divergence and top-1 choices. A choice between logits closer than the stock's worst error is a tie."""
    logits = ~np.isnan(found.stock_kl)
    floor = np.maximum(np.square(found.rounding[logits]), TINY)
    ratios = np.maximum(found.candidate_kl[logits], floor) / np.maximum(found.stock_kl[logits], floor)
    tie = 2 * float(found.stock_worst[logits].max())
    lost = float((found.candidate_gap[logits] > tie).mean() - (found.stock_gap[logits] > tie).mean())
    return (
        _at_most("typical KL divergence", _typical(ratios), contract.kl_ratio),
        _at_most("top-1 choices lost", lost, contract.top1_slack),
    )


def _at_most(check: str, value: float, limit: float) -> Finding:
    return Finding(check=check, value=min(value, 1e300), limit=limit, passed=value <= limit)


def _typical(ratios: Real) -> float:
    """Geometric mean, in which what is better than the stock's counts as equal to it."""
    return _middle(np.maximum(ratios, 1))


def _middle(values: Real) -> float:
    """Geometric mean."""
    return float(np.exp(np.log(np.maximum(values, TINY)).mean()))


def _bits(values: Floats) -> NDArray[np.int64]:
    """NaN as one value, so that equal masks compare equal; -0.0 and 0.0 differ."""
    return np.where(np.isnan(values), np.nan, values).astype(np.float64).view(np.int64)
