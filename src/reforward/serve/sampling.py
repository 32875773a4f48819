"""From one row of logits to a token: a pure function of (row, parameters, seed, index), never a stateful generator."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
"""[vocab] fp32 logits."""
NUCLEUS = 1024
"""So many of the likeliest tokens are sorted first; the whole row only if they do not reach `top_p`."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How a request wants its tokens drawn. `temperature` 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        """The token is the lowest index of the row's maximum."""
        return self.temperature == 0


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A token with its log-probability, and the likeliest tokens with theirs, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def choose(row: Row, how: Drawing, index: int) -> int:
    """The token at place `index` of an answer. Equal arguments give the same token, whoever else is served beside it."""
    if how.greedy:
        return int(row.argmax())
    return _drawn(_softmax(row, how.temperature), how.top_p, uniform(how.seed, index))


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) that depends on these two alone (Philox, Salmon et al., SC 2011)."""
    bits = np.random.Philox(key=seed & (2**64 - 1), counter=index)
    return float(np.random.Generator(bits).random())


def logprobs(row: Row, token: int, count: int) -> Chosen:
    """Log-probabilities at temperature 1 of `token` and of the `count` likeliest; ties go to the lower token."""
    wide = row.astype(np.float64)
    peak = wide.max()
    total = float(peak + np.log(np.exp(wide - peak).sum()))
    best = _likeliest(wide, count)
    top = tuple((int(one), float(wide[one]) - total) for one in best)
    return Chosen(token=token, logprob=float(wide[token]) - total, top=top)


def _softmax(row: Row, temperature: float) -> NDArray[np.float64]:
    """Probabilities in float64; a temperature near 0 tends to greedy, without overflow."""
    wide = row.astype(np.float64)
    wide -= wide.max()
    with np.errstate(over="ignore"):
        wide /= temperature
    np.exp(wide, out=wide)
    wide /= wide.sum()
    return wide


def _drawn(chances: NDArray[np.float64], top_p: float, lot: float) -> int:
    """Where `lot` falls among the likeliest tokens that together reach `top_p`."""
    if top_p >= 1:
        return _falls(np.arange(len(chances)), chances, lot)
    order = _likeliest(chances, min(NUCLEUS, len(chances)))
    if chances[order].sum() < top_p:
        order = _likeliest(chances, len(chances))
    reached = np.cumsum(chances[order])
    kept = order[: int(np.searchsorted(reached, top_p)) + 1]
    return _falls(kept, chances[kept], lot)


def _falls(tokens: NDArray[np.int64], chances: NDArray[np.float64], lot: float) -> int:
    edges = np.cumsum(chances)
    place = int((edges <= lot * edges[-1]).sum())
    return int(tokens[min(place, len(tokens) - 1)])


def _likeliest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Indices of the `count` largest, largest first, ties by index."""
    if count == 0:
        return np.empty(0, np.int64)
    if count >= len(values):
        return np.argsort(-values, kind="stable")
    edge = np.partition(values, len(values) - count)[len(values) - count]
    found = np.flatnonzero(values >= edge)
    return found[np.argsort(-values[found], kind="stable")][:count]
