"""Null candidates: answers made without doing the work. A check that lets one pass is no check.

They are put through the same rules on the same data; if one passes, the data cannot tell work from none, and the
verdict is `void`. (Returning zeros passes 4 of 60 problems of KernelBench level 1 under its absolute tolerance:
ScalingIntelligence/KernelBench issue 165.)
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from reforward.domain.verdict import Finding
from reforward.judge.arrays import Floats, Rows

SAMPLE = 8
"""Rows that nulls are tried on; more would only cost time."""

Rule = Callable[[Sequence[Rows]], tuple[Finding, ...]]


def null_findings(groups: Sequence[Sequence[Rows]], rule: Rule) -> tuple[Finding, ...]:
    """One finding per null candidate: in how many of the groups it was caught; passed if in at least one."""
    merged = [_merged(group) for group in groups]
    return tuple(_tried(name, make, merged, rule) for name, make in NULLS.items())


def _tried(name: str, make: Callable[[Floats], Floats], groups: Sequence[Rows], rule: Rule) -> Finding:
    caught = sum(not all(finding.passed for finding in rule([_faked(rows, make)])) for rows in groups)
    return Finding(check=f"null candidate: {name}", value=float(caught), limit=1.0, passed=caught >= 1)


def _faked(rows: Rows, make: Callable[[Floats], Floats]) -> Rows:
    return replace(rows, candidate=make(rows.stock if rows.oracle is None else rows.oracle))


def _merged(group: Sequence[Rows]) -> Rows:
    """Rows of one group in one matrix; those with an oracle if there are any."""
    exact = [rows for rows in group if rows.oracle is not None]
    parts = exact or list(group)
    oracle = np.concatenate([rows.oracle for rows in parts if rows.oracle is not None])[:SAMPLE] if exact else None
    stock = np.concatenate([rows.stock for rows in parts])[:SAMPLE]
    return replace(parts[0], candidate=stock, stock=stock, oracle=oracle, tokens=())


def _zeros(rows: Floats) -> Floats:
    return np.zeros_like(rows)


def _noise(rows: Floats) -> Floats:
    """Same mean and deviation, nothing else."""
    known = rows[np.isfinite(rows)]
    if not known.size:
        return np.zeros_like(rows)
    return known.mean() + known.std() * np.random.default_rng(0).standard_normal(rows.shape)


def _stale(rows: Floats) -> Floats:
    return np.roll(rows, 1, axis=0)


def _shuffled(rows: Floats) -> Floats:
    """Rows in another order, none in its own place."""
    return np.roll(rows, max(1, len(rows) // 2), axis=0)


NULLS: dict[str, Callable[[Floats], Floats]] = {
    "zeros": _zeros,
    "noise": _noise,
    "previous row": _stale,
    "shuffled rows": _shuffled,
}
