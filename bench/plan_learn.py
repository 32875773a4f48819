"""Corrections learned from measured serving points: boosted trees on the log of measured over planned, with intervals.

For every fold, nothing of its group is seen. Intervals are conformal: a second model learns how large held-out errors are, and
one factor makes 90 % of the held-out errors of the other folds lie within (the jackknife+ of Barber et al., 2021, by groups).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from reforward.plan.residual import LEAST

Array = NDArray[np.float64]
SETTINGS: dict[str, Any] = {
    "max_iter": 150,
    "learning_rate": 0.06,
    "max_leaf_nodes": 6,
    "min_samples_leaf": 40,
    "max_features": 0.3,
}
COVERED = 0.9
SEEDS = 1


def centre_model(seed: int) -> HistGradientBoostingRegressor:
    """The median of the log ratio."""
    return HistGradientBoostingRegressor(loss="absolute_error", random_state=seed, **SETTINGS)


def spread_model(seed: int) -> HistGradientBoostingRegressor:
    """The 90th percentile of its absolute error."""
    return HistGradientBoostingRegressor(loss="quantile", quantile=COVERED, random_state=seed, **SETTINGS)


@dataclass(frozen=True)
class HeldOut:
    """By row: log correction made without the row's group, and the log half width of its 90 % interval."""

    centre: Array
    half: Array


def _out_of_fold(
    make: Callable[[int], Any], features: Array, target: Array, groups: NDArray[Any], learn: NDArray[np.bool_]
) -> Array:
    found = np.zeros(len(target))
    for group in pd.unique(groups):
        held = groups == group
        kept = learn & ~held
        models = [make(seed).fit(features[kept], target[kept]) for seed in range(SEEDS)]
        found[held] = np.mean([model.predict(features[held]) for model in models], axis=0)
    return found


def held_out(
    features: Array, ratio: Array, groups: NDArray[Any], learn: NDArray[np.bool_], most: float, *, spread: bool = True
) -> HeldOut:
    """`ratio`: log of measured over planned; only rows in `learn` are learned from, corrections end at `most`."""
    target = np.clip(ratio, -most, most)
    centre = np.clip(_out_of_fold(centre_model, features, target, groups, learn), -most, most)
    if not spread:
        return HeldOut(centre, np.zeros(len(centre)))
    error = np.abs(ratio - centre)
    width = np.maximum(_out_of_fold(spread_model, features, error, groups, learn), LEAST)
    half = np.zeros(len(centre))
    for group in pd.unique(groups):
        held = groups == group
        half[held] = width[held] * np.quantile((error / width)[learn & ~held], COVERED)
    return HeldOut(centre, half)


def exported(features: Array, ratio: Array, groups: NDArray[Any], most: float) -> dict[str, Any]:
    """What ships for one quantity: both forests on all rows, and the factor from held-out errors."""
    every = np.ones(len(ratio), dtype=bool)
    target = np.clip(ratio, -most, most)
    error = np.abs(ratio - np.clip(_out_of_fold(centre_model, features, target, groups, every), -most, most))
    width = np.maximum(_out_of_fold(spread_model, features, error, groups, every), LEAST)
    return {
        "centre": forest(centre_model(0).fit(features, target), features),
        "spread": forest(spread_model(0).fit(features, error), features),
        "factor": round(float(np.quantile(error / width, COVERED)), 4),
    }


def forest(model: HistGradientBoostingRegressor, features: Array) -> dict[str, Any]:
    """The trees as numbers. Raises `ValueError` if they do not say what the model says."""
    from reforward.plan.residual import Forest

    fitted: Any = model
    trees = [
        [
            [-1, 0, 0, 0, _short(node["value"])]
            if node["is_leaf"]
            else [int(node["feature_idx"]), float(node["num_threshold"]), int(node["left"]), int(node["right"]), 0]
            for node in stage[0].nodes
        ]
        for stage in fitted._predictors
    ]
    found = {"start": float(np.ravel(fitted._baseline_prediction)[0]), "trees": trees}
    worst = float(np.abs(Forest.of(found)(features) - model.predict(features)).max())
    if worst > 1e-3:
        raise ValueError(f"the trees as written differ from the model by {worst}")
    return found


def _short(value: float) -> float:
    return float(f"{value:.6g}")
