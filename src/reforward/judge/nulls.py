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
Make = Callable[[Sequence[Floats]], list[Floats]]


def null_findings(groups: Sequence[Sequence[Rows]], rule: Rule) -> tuple[Finding, ...]:
    """One finding per null candidate: in how many of the groups it was caught; passed if in at least one."""
    samples = [_sample(group) for group in groups]
    return tuple(_tried(name, make, samples, rule) for name, make in NULLS.items())


def _tried(name: str, make: Make, samples: Sequence[Sequence[Rows]], rule: Rule) -> Finding:
    caught = sum(not all(finding.passed for finding in rule(_faked(rows, make))) for rows in samples)
    return Finding(check=f"null candidate: {name}", value=float(caught), limit=1.0, passed=caught >= 1)


def _faked(rows: Sequence[Rows], make: Make) -> list[Rows]:
    truth = [part.stock if part.oracle is None else part.oracle for part in rows]
    return [replace(part, candidate=made) for part, made in zip(rows, make(truth), strict=True)]


def _sample(group: Sequence[Rows]) -> list[Rows]:
    """Rows of one group, each by itself since their widths may differ; those with an oracle if there are any.

    They lie far apart: neighbours may be all alike (a row of dashes in a prompt), and of such data a null candidate that repeats
    what came before is right.
    """
    exact = [rows for rows in group if rows.oracle is not None]
    each = [(part, index) for part in exact or group for index in range(len(part.stock))]
    count = min(SAMPLE, len(each))
    return [_row(*each[place * len(each) // count]) for place in range(count)]


def _row(rows: Rows, index: int) -> Rows:
    one = slice(index, index + 1)
    return replace(
        rows,
        candidate=rows.stock[one],
        stock=rows.stock[one],
        oracle=None if rows.oracle is None else rows.oracle[one],
        tokens=(),
        positions=(),
    )


def _zeros(rows: Sequence[Floats]) -> list[Floats]:
    return [np.zeros_like(row) for row in rows]


def _noise(rows: Sequence[Floats]) -> list[Floats]:
    """Same mean and deviation, nothing else."""
    known = np.concatenate([row[np.isfinite(row)] for row in rows])
    if not known.size:
        return _zeros(rows)
    draw = np.random.default_rng(0)
    return [known.mean() + known.std() * draw.standard_normal(row.shape) for row in rows]


def _stale(rows: Sequence[Floats]) -> list[Floats]:
    return _from_others(rows, 1)


def _shuffled(rows: Sequence[Floats]) -> list[Floats]:
    """Rows in another order, none in its own place."""
    return _from_others(rows, max(1, len(rows) // 2))


def _from_others(rows: Sequence[Floats], back: int) -> list[Floats]:
    """Each row answered with the one so many places before it, repeated or cut to its width."""
    return [np.resize(rows[index - back], row.shape) for index, row in enumerate(rows)]


NULLS: dict[str, Make] = {
    "zeros": _zeros,
    "noise": _noise,
    "previous row": _stale,
    "shuffled rows": _shuffled,
}
