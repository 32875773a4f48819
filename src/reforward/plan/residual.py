"""What measured serving points say beyond the operators: learned corrections, and how far off corrected estimates may be.

Boosted trees by scikit-learn, written out as numbers, so that reading them needs numpy alone. Remade by
`python bench/plan_fit.py FOLDER` from the measured points that come with aiconfigurator-core 0.12.0 (Apache-2.0, NVIDIA; most of
them from InferenceX, Apache-2.0, SemiAnalysis).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PACKAGED = Path(__file__).parent / "residual.json"
MOST = {"tpot": 0.8, "ttft": 3.0}
"""A log ratio is never corrected by more: beyond it a measured point hides a setting, such as speculation or a long queue."""


@dataclass(frozen=True)
class Forest:
    """A sum of regression trees. Rows of a tree: feature (-1: a leaf), threshold, left, right, value."""

    start: float
    trees: tuple[Array, ...]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Forest":
        """From a parsed document."""
        return cls(float(found["start"]), tuple(np.asarray(tree, dtype=np.float64) for tree in found["trees"]))

    def __call__(self, rows: Array) -> Array:
        """Predictions for [rows, features]."""
        total = np.full(len(rows), self.start)
        every = np.arange(len(rows))
        for tree in self.trees:
            at = np.zeros(len(rows), dtype=np.int64)
            while True:
                feature = tree[at, 0].astype(np.int64)
                inner = feature >= 0
                if not inner.any():
                    break
                left = rows[every, np.maximum(feature, 0)] <= tree[at, 1]
                below: NDArray[np.int64] = tree[at, np.where(left, 2, 3)].astype(np.int64)
                at = np.where(inner, below, at)
            total += tree[at, 4]
        return total


@dataclass(frozen=True)
class Correction:
    """Of one quantity: log of measured over planned, and the half width of its 90 % interval."""

    centre: Forest
    spread: Forest
    factor: float
    """Half width over `spread`: made so that 90 % of held-out points lie within."""
    most: float
    """Largest correction."""


@dataclass(frozen=True)
class Residual:
    """Corrections of TPOT and of TTFT, by features in this order."""

    names: Sequence[str]
    tpot: Correction
    ttft: Correction

    @classmethod
    @cache
    def read(cls, path: Path = PACKAGED) -> "Residual":
        """The packaged one."""
        found = json.loads(path.read_text(encoding="utf-8"))
        parts = {
            name: Correction(
                Forest.of(found[name]["centre"]), Forest.of(found[name]["spread"]), found[name]["factor"], most
            )
            for name, most in MOST.items()
        }
        return cls(found["features"], parts["tpot"], parts["ttft"])

    def rows(self, features: Mapping[str, Array]) -> Array:
        """[rows, features] in the order of the trees."""
        return np.stack([np.asarray(features[name]).reshape(-1) for name in self.names], axis=-1)


def apply(correction: Correction, rows: Array) -> tuple[Array, Array]:
    """(log correction, log half width of 90 %) of each row."""
    centre = np.clip(correction.centre(rows), -correction.most, correction.most)
    return centre, correction.factor * np.maximum(correction.spread(rows), LEAST)


LEAST = 0.02
"""No interval is narrower: the measured points' own noise."""
