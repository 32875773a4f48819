"""Per-row errors of candidate and stock: the raw numbers that the rules of `numerics` are about."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from reforward.judge.arrays import Floats, Real, Rows, epsilon

BLOCKS = 16
"""Stretches of a row whose errors are looked at apart."""
TINY = 1e-300
LEAST_WIDTH = 8
"""Elements of a stretch; fewer say nothing about a typical error."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """One entry per row. `candidate_*` and `stock_*` are against the oracle, NaN where there is none."""

    scale: Real
    """RMS of the values themselves."""
    peak: Real
    """Largest magnitude."""
    rounding: Real
    """Half a unit in the last place at the row's scale, in the type of the output."""
    distance: Real
    """RMS of candidate minus stock."""
    candidate_rms: Real
    stock_rms: Real
    candidate_worst: Real
    stock_worst: Real
    candidate_blocks: Real
    """RMS in each of `BLOCKS` stretches of the row, `[rows, BLOCKS]`; NaN where rows are too narrow."""
    stock_blocks: Real
    position: Real
    """Where in its sequence a row lies; NaN for what is not logits."""
    candidate_kl: Real
    """KL divergence from the oracle's distribution, nats; NaN for what is not logits."""
    stock_kl: Real
    candidate_gap: Real
    """Oracle's top logit minus the oracle's logit of the candidate's top choice: 0 where they agree."""
    stock_gap: Real


def errors(rows: Rows) -> Errors:
    """Compare the rows of one output."""
    candidate, stock = finite(rows.candidate), finite(rows.stock)
    against = stock if rows.oracle is None else finite(rows.oracle)
    ours, theirs, scale = candidate - against, stock - against, _rms(against)
    missing = np.full(len(stock), np.nan)
    judged = rows.oracle is not None
    logits = judged and rows.logits
    return Errors(
        scale=scale,
        peak=np.abs(against).max(axis=1, initial=0.0),
        rounding=scale * epsilon(rows.dtype) / 2,
        distance=_rms(candidate - stock),
        candidate_rms=_rms(ours) if judged else missing,
        stock_rms=_rms(theirs) if judged else missing,
        candidate_worst=_worst(ours) if judged else missing,
        stock_worst=_worst(theirs) if judged else missing,
        candidate_blocks=_blocks(ours, judged),
        stock_blocks=_blocks(theirs, judged),
        position=np.array(rows.positions, np.float64) if rows.positions else missing,
        candidate_kl=divergence(against, candidate) if logits else missing,
        stock_kl=divergence(against, stock) if logits else missing,
        candidate_gap=_gap(against, candidate) if logits else missing,
        stock_gap=_gap(against, stock) if logits else missing,
    )


def columns(parts: Sequence[Rows]) -> tuple[Real, int] | None:
    """How far each element is off, candidate over stock, as a geometric mean over all rows that have an oracle, and how many
    those are; None for what is no logits, whose elements are not the same from row to row.
    """
    exact = [part for part in parts if part.logits and part.oracle is not None]
    if not exact:
        return None
    count = sum(len(part.stock) for part in exact)
    return np.exp(np.sum([_logarithms(part) for part in exact], axis=0) / count), count


def _logarithms(part: Rows) -> Real:
    """Sum over the rows of one output of log(candidate's error / stock's), neither below the rounding of the type."""
    assert part.oracle is not None
    truth = finite(part.oracle)
    least = np.maximum(_rms(truth) * epsilon(part.dtype) / 2, TINY)[:, None]
    ours, theirs = (np.maximum(np.abs(finite(made) - truth), least) for made in (part.candidate, part.stock))
    return np.log(ours / theirs).sum(axis=0)


def joined(parts: Sequence[Errors]) -> Errors:
    """All rows of several outputs."""
    names = [field.name for field in fields(Errors)]
    return Errors(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def finite(values: Floats) -> Real:
    """As float64, non-finite elements as zero: their masks are compared before any number is."""
    wide = values.astype(np.float64)
    known = np.isfinite(wide)
    if not known.all():
        wide[~known] = 0.0
    return wide


def divergence(truth: Real, other: Real) -> Real:
    """KL(softmax(truth) || softmax(other)) per row, nats."""
    p, q = _log_softmax(truth), _log_softmax(other)
    return np.maximum((np.exp(p) * (p - q)).sum(axis=1), 0.0)


def _log_softmax(rows: Real) -> Real:
    shifted = rows - rows.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _rms(rows: Real) -> Real:
    return np.sqrt(np.square(rows).mean(axis=1))


def _blocks(rows: Real, judged: bool) -> Real:
    if not judged or rows.shape[1] < BLOCKS * LEAST_WIDTH:
        return np.full((len(rows), BLOCKS), np.nan)
    return np.stack([_rms(part) for part in np.array_split(rows, BLOCKS, axis=1)], axis=1)


def _worst(rows: Real) -> Real:
    return np.abs(rows).max(axis=1)


def _gap(truth: Real, other: Real) -> Real:
    choice: NDArray[np.intp] = other.argmax(axis=1)
    return truth.max(axis=1) - truth[np.arange(len(truth)), choice]
