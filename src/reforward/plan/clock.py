"""A cost model as a clock for a replay: tables of step times, read by interpolation, since a replay asks for thousands."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from reforward.plan.rank import Load
from reforward.plan.steps import StepTimes

Floats = NDArray[np.float64]
FINE = 1.5
"""Ratio of neighbouring batch sizes and token counts in a table; contexts lie a factor of 2 apart."""


def grid(most: float, ratio: float, first: float = 1.0) -> list[float]:
    """Whole numbers from `first` to at least `most`, each about `ratio` times the one before."""
    places = [first]
    while places[-1] < most:
        places.append(max(places[-1] + 1, float(round(places[-1] * ratio))))
    return places


@dataclass(frozen=True, kw_only=True)
class Table:
    """Seconds by two sizes, bilinear between the places of a grid; beyond its end the last cell goes on."""

    rows: list[float]
    columns: list[float]
    seconds: list[list[float]]

    @classmethod
    def of(cls, rows: list[float], columns: list[float], seconds: Floats) -> Self:
        """From seconds of shape [rows, columns]."""
        return cls(rows=rows, columns=columns, seconds=np.broadcast_to(seconds, (len(rows), len(columns))).tolist())

    def at(self, row: float, column: float) -> float:
        """Seconds at one place."""
        i, u = _place(self.rows, row)
        j, v = _place(self.columns, column)
        upper, lower = self.seconds[i], self.seconds[i + 1]
        high = upper[j] + v * (upper[j + 1] - upper[j])
        low = lower[j] + v * (lower[j + 1] - lower[j])
        return high + u * (low - high)

    def row(self, row: float) -> Floats:
        """[columns] seconds along one row."""
        i, u = _place(self.rows, row)
        upper, lower = np.array(self.seconds[i]), np.array(self.seconds[i + 1])
        return upper + u * (lower - upper)


def _place(places: list[float], value: float) -> tuple[int, float]:
    """The cell of a value, and how far into the cell it lies."""
    cell = min(max(bisect_right(places, value) - 1, 0), len(places) - 2)
    return cell, (value - places[cell]) / (places[cell + 1] - places[cell])


class TableClock:
    """`StepTimes` in tables: decode by (batch, context), prefill by (tokens, context), and both by (tokens, batch).

    What contexts add in a mixed step is taken to be a part for the prompt, whatever decodes, and one for what decodes,
    whatever the prompt, since attention is the only term that sees them.
    `slower` multiplies steps with a piece of a prompt in them, and steps that only decode.
    """

    def __init__(self, steps: StepTimes, *, most_batch: int, most_tokens: int, longest: int) -> None:
        batches, contexts = grid(max(most_batch, 2), FINE), grid(max(longest, 2), 2.0)
        tokens = grid(max(most_tokens, 2), FINE)
        column = np.array(contexts)[None, :]
        self._decode = Table.of(batches, contexts, steps.decode_s(np.array(batches)[:, None], column))
        self._prefill = Table.of(tokens, contexts, steps.prefill_s(np.array(tokens)[:, None], column))
        # With a batch of none the step is a prefill: the table's first column is a batch of one.
        both = steps.mixed_s(np.array(tokens)[:, None], contexts[0], np.array(batches)[None, :], contexts[0])
        self._mixed = Table.of(tokens, batches, both)
        one = steps.mixed_s(1.0, contexts[0], np.array(batches)[:, None], column)
        self._crowd = Table.of(batches, contexts, one - one[:, :1])
        self._rows: dict[int, Floats] = {}
        self._contexts = np.array(contexts)
        self.slower = (1.0, 1.0)

    def scaled(self, prefill: float, decode: float) -> "TableClock":
        """The same tables, with all steps slower by these factors."""
        other = object.__new__(TableClock)
        other.__dict__.update(self.__dict__)
        other.slower = (prefill, decode)
        return other

    def decode(self, batch: int, context: int, steps: int) -> Floats:
        """[steps] seconds; `context`: tokens that the batch attends to in the first step, all requests together."""
        mean = context / batch
        if steps == 1:
            return np.array([self._decode.at(batch, mean) * self.slower[1]])
        row = self._rows.get(batch)
        if row is None:
            row = self._rows[batch] = self._decode.row(batch)
        return np.interp(mean + np.arange(steps), self._contexts, row) * self.slower[1]

    def mixed(self, load: Load) -> float:
        """Seconds of a step with a piece of a prompt."""
        tokens = load.prefill_tokens
        before = load.prefill_pairs / tokens - 1
        if not load.batch:
            return self._prefill.at(tokens, before) * self.slower[0]
        first = self._contexts[0]
        attention = self._prefill.at(tokens, before) - self._prefill.at(tokens, first)
        attention += self._crowd.at(load.batch, load.context / load.batch)
        return (self._mixed.at(tokens, load.batch) + attention) * self.slower[0]
