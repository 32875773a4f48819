"""Prompts on some replicas, answers on others: the best pair of layouts, how many of each, replayed one behind the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from reforward.plan.case import COUNT, WARM, Case, Outcome, Question
from reforward.plan.replay import replay
from reforward.plan.sla import measured
from reforward.plan.traffic import Traffic

Floats = NDArray[np.float64]
TRIED = 3
"""Layouts of each role that are searched, the best by their bound."""
LEAST = 0.5
"""The load of a pair is looked for between this share of what both roles carry alone, and that over it."""
STEP = 0.9
MOST_REPLICAS = 8
"""Replicas that answer; a larger deployment is several of such."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Replicas that compute prompts, and replicas that answer."""

    prefill: Case
    decode: Case
    prefills: int
    decodes: int

    @property
    def gpus(self) -> int:
        """Of all replicas."""
        return self.prefills * self.prefill.layout.gpus + self.decodes * self.decode.layout.gpus

    @property
    def words(self) -> str:
        """Such as `2P(tp1) 1D(tp4)`."""
        return f"{self.prefills}P({self.prefill.layout}) {self.decodes}D({self.decode.layout})"

    def transfer(self, prompts: NDArray[np.int64]) -> Floats:
        """[requests] seconds that caches take from one GPU to another: ranks send at the same time."""
        gpu = self.decode.question.gpu
        link = gpu.link if self.gpus <= gpu.scale_up else gpu.scale_out
        return prompts.astype(np.float64) * (self.decode.memory.kv_bytes_per_token / link)

    def at(self, rate: float, z: float = 0.0) -> Outcome:
        """Replay all prefill replicas, and one that answers, at a rate of the whole pair."""
        question = self.decode.question
        whole = question.traffic.at(rate, COUNT * self.decodes)
        ready = self._computed(whole, z) + self.transfer(whole.prompt)
        mine = np.arange(len(whole)) % self.decodes == 0
        order = np.argsort(ready[mine], kind="stable")
        answering = Traffic(
            arrival=ready[mine][order],
            prompt=whole.prompt[mine][order],
            output=whole.output[mine][order],
            source=whole.source,
        )
        held = self.decode.under_way(rate / self.decodes)
        schedule = self.decode.schedule(held + len(answering))
        run = replay(question.traffic.under_way(held, answering), schedule, self.decode.clock_at(z))
        asked = np.concatenate([run.arrival[:held], whole.arrival[mine][order]])
        run, first = replace(run, arrival=asked), held + COUNT // WARM
        ratios = {one.name: measured(one.metric, one.percentile, run, first) / one.seconds for one in question.sla}
        most = min(self.prefills * self.prefill.most(z), self.decodes * self.decode.most(z))
        return Outcome(run=run, first=first, ratios=ratios | ({"queue": rate / most} if rate > most else {}))

    def _computed(self, whole: Traffic, z: float) -> Floats:
        """[requests] when each prompt is computed; requests go round the prefill replicas."""
        ready = np.zeros(len(whole))
        for replica in range(self.prefills):
            rows = np.arange(replica, len(whole), self.prefills)
            prompts = Traffic(
                arrival=whole.arrival[rows],
                prompt=whole.prompt[rows],
                output=np.ones(len(rows), np.int64),
                source=whole.source,
            )
            ready[rows] = replay(prompts, self.prefill.schedule(), self.prefill.clock_at(z)).first
        return ready

    def capacity(self, near: float, z: float) -> float:
        """Most requests a second that keep the SLA, in steps up or down from `near`; 0 if not even `LEAST` of it does."""
        rate = near
        if self.at(rate, z).ratio <= 1:
            while rate < near / LEAST and self.at(rate / STEP, z).ratio <= 1:
                rate /= STEP
            return rate
        while rate >= LEAST * near:
            rate *= STEP
            if self.at(rate, z).ratio <= 1:
                return rate
        return 0.0


def pairs(question: Question, cases: Sequence[Case], z: float) -> list[tuple[float, Pair]]:
    """(requests a second, pair) of the best numbers of replicas for the best layouts of each role, best first."""
    prompts = [_prefilling(case) for case in cases]
    answers = [replace(case, received=True, question=_only(question, ("itl", "tpot"))) for case in cases]
    first = [(capacity, case) for case in _best(prompts) if (capacity := case.capacity(z)) > 0]
    second = [(capacity, case) for case in _best(answers) if (capacity := case.capacity(z)) > 0]
    found = [
        (min(x * fill, y * answer) * STEP, Pair(prefill=p, decode=replace(d, question=question), prefills=x, decodes=y))
        for fill, p in first
        for answer, d in second
        for x, y in _numbers(question, p, d, fill, answer)
    ]
    found.sort(key=lambda one: -_worth(question, *one))
    kept = [(pair.capacity(most, z), pair) for most, pair in found[:TRIED]]
    return sorted((one for one in kept if _worth(question, *one) > 0), key=lambda one: -_worth(question, *one))


def _worth(question: Question, rate: float, pair: Pair) -> float:
    """Requests a second and GPU; with a rate, nothing for a pair that does not carry it, and else by its GPUs."""
    if question.rate is None:
        return rate / pair.gpus
    return question.rate / pair.gpus if rate >= question.rate else 0.0


def _numbers(question: Question, p: Case, d: Case, fill: float, answer: float) -> Iterator[tuple[int, int]]:
    """For each number of replicas that answer, those that keep them busy."""
    for y in range(1, min(question.gpus // d.layout.gpus, MOST_REPLICAS) + 1):
        wanted = min(question.rate or y * answer, y * answer)
        for x in {max(int(wanted / fill), 1), ceil(wanted / fill)}:
            if x * p.layout.gpus + y * d.layout.gpus <= question.gpus:
                yield x, y


def _best(cases: Sequence[Case]) -> list[Case]:
    return sorted(cases, key=lambda case: -case.bound / case.layout.gpus)[:TRIED]


def _prefilling(case: Case) -> Case:
    return replace(case, output=_prompts_alone, question=_only(case.question, ("ttft",)))


def _prompts_alone(traffic: Traffic) -> Traffic:
    return replace(traffic, output=np.ones(len(traffic), dtype=np.int64))


def _only(question: Question, metrics: Sequence[str]) -> Question:
    return replace(question, sla=tuple(one for one in question.sla if one.metric in metrics))
