"""One way to serve: a layout with its batch limits, replayed under load, and the most load under which the SLA holds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from reforward.plan.clock import TableClock
from reforward.plan.engine import Engine, Limits
from reforward.plan.gpu import Gpu
from reforward.plan.layout import Layout
from reforward.plan.memory import Memory
from reforward.plan.model import Model
from reforward.plan.replay import Replayed, Schedule, replay
from reforward.plan.sla import Limit, measured
from reforward.plan.steps import StepTimes
from reforward.plan.traffic import Traffic

MOST_SEATS, MOST_TOKENS = 1024, 16384
"""Sizes of tables of step times; larger limits make larger ones."""
COUNT = 240
"""Requests of one replay, besides those that are under way when it begins."""
WARM = 8
"""One in so many requests, the first ones, is not counted: what was under way at the beginning is a guess."""
STRIDE = 1.6
"""Ratio of rates while it looks for both ends."""
IDLE = 0.02
"""Share of the most conceivable load that counts as none."""
CLOSE = 1.06
"""Ratio of rates at which the search for the most load ends."""


class Price(Protocol):
    """Step times of a replica, and how far off they may be."""

    def __call__(self, model: Model, gpu: Gpu, layout: Layout, engine: Engine) -> "Priced": ...


@dataclass(frozen=True, kw_only=True)
class Priced:
    """Step times with the standard deviations of the log of what the true ones are over them."""

    steps: StepTimes
    prefill_spread: float
    decode_spread: float
    about: str
    """Where the times come from."""
    _clocks: dict[tuple[int, int, int], TableClock] = field(
        default_factory=dict[tuple[int, int, int], TableClock], repr=False
    )

    def clock(self, batch: int, tokens: int, longest: int) -> TableClock:
        """Tables up to these sizes, made once."""
        key = (batch, tokens, longest)
        if key not in self._clocks:
            self._clocks[key] = TableClock(self.steps, most_batch=batch, most_tokens=tokens, longest=longest)
        return self._clocks[key]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be planned."""

    model: Model
    gpu: Gpu
    gpus: int
    engine: Engine
    traffic: Traffic
    sla: tuple[Limit, ...]
    price: Price
    rate: float | None = None
    """Requests a second of the whole deployment; None: as many as the SLA allows."""
    seats: int | None = None
    """Sequences of a step, `max_num_seqs`; None: searched, and likewise the tokens."""
    tokens: int | None = None
    max_model_len: int = 0
    memory_utilization: float = 0.9


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One replay against the SLA. Seconds."""

    run: Replayed
    first: int
    """Requests before it are not counted."""
    ratios: dict[str, float]
    """Measured over allowed, by limit; `queue`, only if more is asked for than can be made: by how much."""

    @property
    def worst(self) -> str:
        """The limit that is nearest, or broken by most."""
        return max(self.ratios, key=lambda name: self.ratios[name], default="")

    @property
    def ratio(self) -> float:
        """Above 1: the SLA is broken."""
        return self.ratios.get(self.worst, 0.0)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A layout and limits that fit into memory."""

    question: Question
    layout: Layout
    limits: Limits
    memory: Memory
    priced: Priced
    output: Callable[[Traffic], Traffic] | None = None
    """What a replica is asked of the traffic; None: all of it."""
    received: bool = False
    """Prompts come computed from elsewhere."""

    def schedule(self, received: int = 0) -> Schedule:
        """Of one pipeline stream: stages work on as many batches at once, each with its part of seats and blocks."""
        streams = self.layout.pp
        seats = max(self.limits.max_num_seqs // streams, 1)
        limits = Limits(max_num_seqs=seats, max_num_batched_tokens=self.limits.max_num_batched_tokens)
        return Schedule(
            limits=limits,
            blocks=self.memory.kv_blocks // streams,
            ranks=self.layout.dp,
            overlap=1,
            received=received,
        )

    @cached_property
    def clock(self) -> TableClock:
        """Tables for all limits that are tried, so that they are made once for a layout."""
        held = max(self.schedule().kv_tokens // max(int(self.traffic.prompt.min()), 1), 1)
        batch = min(max(self.limits.max_num_seqs, MOST_SEATS), max(held, self.limits.max_num_seqs))
        return self.priced.clock(batch, max(self.limits.max_num_batched_tokens, MOST_TOKENS), self.traffic.longest)

    @cached_property
    def traffic(self) -> Traffic:
        """What a replica sees."""
        return self.output(self.question.traffic) if self.output else self.question.traffic

    @property
    def streams(self) -> int:
        """Pipeline streams of all replicas that the GPUs have room for: each sees one request in so many."""
        return self.layout.pp * max(self.question.gpus // self.layout.gpus, 1)

    @cached_property
    def bound(self) -> float:
        """Requests a second of a replica that no schedule exceeds by much: steps as full as memory and SLA allow."""
        return self.layout.pp * self.layout.dp * float(np.max(self._paces / self._spent))

    @cached_property
    def _batches(self) -> np.ndarray:
        length = float((self.traffic.prompt + self.traffic.output / 2).mean())
        most = min(self.schedule().kv_tokens / length, self.schedule().limits.max_num_seqs)
        return np.unique(np.geomspace(1, max(most, 1), 12))

    @cached_property
    def _decode(self) -> np.ndarray:
        length = float((self.traffic.prompt + self.traffic.output / 2).mean())
        return np.asarray(self.priced.steps.decode_s(self._batches, length), float)

    @cached_property
    def _paces(self) -> np.ndarray:
        """Batches whose steps are short enough for the SLA; one at least."""
        allowed = min((one.seconds for one in self.question.sla if one.metric in ("itl", "tpot")), default=np.inf)
        short = self._decode <= allowed * 1.1
        short[0] = True
        return np.where(short, self._batches, 0.0)

    @cached_property
    def _spent(self) -> np.ndarray:
        """Seconds of a request, times the batch that shares them."""
        prompt, output = self.traffic.prompt, self.traffic.output
        if self.received:
            return output.mean() * self._decode
        chunk = self.limits.max_num_batched_tokens
        whole = float(self.priced.steps.prefill_s(float(chunk), float((prompt**2).mean() / prompt.mean() / 2)))
        return output.mean() * self._decode + self._batches * prompt.mean() * whole / chunk

    def at(self, rate: float, z: float = 0.0, first: int = 0) -> Outcome:
        """Replay one stream of a replica that gets `rate` requests a second, with all steps `z` deviations slow."""
        held = self.under_way(rate)
        arriving = self.traffic.at(rate / self.layout.pp, COUNT, share=self.streams, first=first)
        run = replay(
            self.traffic.under_way(held, arriving), self.schedule(held + COUNT * self.received), self.clock_at(z)
        )
        warm = held + COUNT // WARM
        ratios = {one.name: measured(one.metric, one.percentile, run, warm) / one.seconds for one in self.question.sla}
        asked = rate / self.most(z)
        if asked > 1:
            ratios["queue"] = asked
        return Outcome(run=run, first=warm, ratios=ratios)

    def clock_at(self, z: float) -> TableClock:
        """The tables with all steps `z` deviations slow."""
        return self.clock.scaled(
            float(np.exp(z * self.priced.prefill_spread)), float(np.exp(z * self.priced.decode_spread))
        )

    def most(self, z: float = 0.0) -> float:
        """Requests a second of a replica beyond which its queue has no end."""
        paces = self._batches / self._spent
        slower = float(np.exp(z * (self.priced.prefill_spread + self.priced.decode_spread) / 2))
        return self.layout.pp * self.layout.dp * float(paces.max()) / slower

    def under_way(self, rate: float) -> int:
        """Requests of one stream at once: with the load the batch grows that shares a step."""
        paces = np.maximum.accumulate(self._batches / self._spent) * self.layout.dp * self.layout.pp
        held = float(np.interp(rate, paces, self._batches))
        return int(held * self.layout.dp) if rate >= paces[0] else 0

    def capacity(self, z: float = 0.0, near: float = 0.0) -> float:
        """Most requests a second of a replica under which the SLA holds; 0 if it does not hold without load.

        `near`: where to look first. From there outwards until one rate holds and one does not, then in between.
        """
        most = self.most(z)
        least = self.bound * IDLE
        low = high = min(near or self.bound / 2, most)
        if self.at(low, z).ratio <= 1:
            while low == high or self.at(high, z).ratio <= 1:
                low, high = high, min(high * STRIDE, most)
                if low >= most:
                    return low
        else:
            if self.at(least, z).ratio > 1:
                return 0.0
            while low == high or self.at(low, z).ratio > 1:
                low, high = max(low / STRIDE, least), low
        while high / low > CLOSE:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if self.at(middle, z).ratio <= 1 else (low, middle)
        return low
