"""Candidates judged per hour at the fast tier on a persistent engine, against one fresh cold engine per candidate at full depth.

    python bench/rate.py [--candidates 6]

The same candidates, the same judge, the same number of timed tokens in all arms. The cold arm does what an optimiser does that
restarts its engine for each candidate: start, load, measure at full depth, end. The decomposition takes one saving away at a
time: early stopping of clear losers and winners, then the truncated tier, then the persistent engine. Builds come from the
cache in all arms, as they would when they overlap with timing. The noise of the machine is measured once before (seconds, valid
for an hour), and not counted either.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import ParamSpec, TypeVar

import card
from house import open_engine
from reforward.app.calibrate import PAIRS, FixedPairs
from reforward.app.settings import Settings
from reforward.app.subjects import Loaded
from reforward.app.workloads import workloads
from reforward.domain.calibration import Noise
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.measurement import Measurement
from reforward.domain.ports import Stopping
from reforward.domain.workload import Workload
from reforward.engine.cpu import CpuEngine
from reforward.judge.gain import noise
from reforward.judge.standard import StandardJudge
from reforward.measure.measurer import Measurer
from reforward.propose.passes import PASSES
from reforward.propose.search import tools_here

RESOLUTION = 0.08
P = ParamSpec("P")
T = TypeVar("T")
CONTRACT = Contract(numerics="reassociated", min_gain=RESOLUTION, resolution=RESOLUTION)


class Arm:
    """One way of judging; `seconds` and `rulings` per candidate."""

    def __init__(self, name: str, *, early: bool, deep: bool) -> None:
        self.name, self.early, self.deep = name, early, deep
        self.incumbent: Candidate | None = None
        """What candidates are compared with; None for the stock forward."""
        self.noise: Noise | None = None
        self.checking_s = 0.0
        self.seconds: list[float] = []
        self.rulings: list[str] = []

    def measurer(self, engine: CpuEngine, loaded: Loaded) -> Measurer:
        """On an engine whose fast tier runs all layers if this arm is a deep one."""
        assert loaded.tokenizer is not None
        if self.deep:
            engine.subject = replace(engine.subject, fast_depth=engine.subject.depth)
        measurer = Measurer(engine, loaded.stock, CONTRACT, encode=loaded.tokenizer.encode)
        measurer.references.teach = self._timed(measurer.references.teach)
        return measurer

    def warm(self, measurer: Measurer, loaded: Loaded, workload: Workload) -> None:
        """Start the reference workers and learn the noise: the incumbent against itself."""
        base = self.incumbent or loaded.stock
        facts, _ = measurer.measure(base, base, workload, "fast", FixedPairs(PAIRS))
        assert isinstance(facts, Measurement), facts
        self.noise = noise(facts.samples)

    def judge(self, measurer: Measurer, loaded: Loaded, workload: Workload, candidate: Candidate) -> None:
        """One session to its verdict."""
        judge = StandardJudge(noise=self.noise)
        stopping: Stopping = judge.stopping(CONTRACT, "fast") if self.early else FixedPairs(CONTRACT.fast_pairs)
        facts, outputs = measurer.measure(candidate, self.incumbent or loaded.stock, workload, "fast", stopping)
        self.rulings.append(self._timed(judge.rule)(facts, outputs, CONTRACT).ruling)

    def _timed(self, check: Callable[P, T]) -> Callable[P, T]:
        """The same, with its seconds added to `checking_s`: what the judge costs a session."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            begun = time.perf_counter()
            try:
                return check(*args, **kwargs)
            finally:
                self.checking_s += time.perf_counter() - begun

        return timed

    @property
    def per_hour(self) -> float:
        """Verdicts per hour."""
        return 3600 * len(self.seconds) / sum(self.seconds)


def persistent(arm: Arm, threads: int, count: int) -> Arm:
    """One engine and one set of reference workers for all candidates; opening them is not counted."""
    with open_engine("smollm2", threads) as (engine, loaded):
        pool, workload = material(engine, loaded, count)
        measurer = arm.measurer(engine, loaded)
        try:
            arm.warm(measurer, loaded, workload)
            arm.checking_s = 0.0
            for candidate in pool:
                begun = time.perf_counter()
                arm.judge(measurer, loaded, workload, candidate)
                arm.seconds.append(time.perf_counter() - begun)
        finally:
            measurer.close()
    return arm


def cold(arm: Arm, threads: int, count: int) -> Arm:
    """Everything from nothing for each candidate."""
    with open_engine("smollm2", threads) as (engine, loaded):
        pool, workload = material(engine, loaded, count)
    for candidate in pool:
        begun = time.perf_counter()
        with open_engine("smollm2", threads) as (engine, loaded):
            measurer = arm.measurer(engine, loaded)
            arm.judge(measurer, loaded, workload, candidate)
            measurer.close()
        arm.seconds.append(time.perf_counter() - begun)
    return arm


def material(engine: CpuEngine, loaded: Loaded, count: int) -> tuple[list[Candidate], Workload]:
    """Single passes, gainful and not, in the order of the registry, all built; and the demo's workload."""
    tools = tools_here()
    made = (one.apply(loaded.stock) for one in PASSES if not one.slow and set(one.needs) <= tools)
    pool = [candidate for candidate in made if candidate is not None][:count]
    for candidate in pool:
        engine.prepare(candidate)
    return pool, workloads(loaded, engine, Settings(length_scale=1 / 16, requests=4)).search


def main() -> None:
    """Four arms, one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=6)
    args = parser.parse_args()
    threads = card.machine().cores
    card.ceiling("the timed passes themselves; starting, loading, checking and deciding is what an engine can hide")
    arms = [
        persistent(Arm("persistent, fast tier, early stopping", early=True, deep=False), threads, args.candidates),
        persistent(Arm("persistent, fast tier, all pairs", early=False, deep=False), threads, args.candidates),
        persistent(Arm("persistent, full depth, all pairs", early=False, deep=True), threads, args.candidates),
        cold(Arm("cold engine each, full depth, all pairs", early=False, deep=True), threads, args.candidates),
    ]
    rows = [[arm.name, card.spread(arm.seconds, 2), f"{arm.per_hour:.0f}", " ".join(arm.rulings)] for arm in arms]
    card.table(
        f"seconds per candidate at a resolution of {RESOLUTION:.0%}, median [min, max]",
        ["arm", "s", "per hour", "rulings"],
        rows,
    )
    first, last = arms[0].per_hour, arms[-1].per_hour
    share = arms[0].checking_s / sum(arms[0].seconds)
    print(f"references and rules take {share:.0%} of a persistent session with early stopping")
    figures = {"persistent_per_hour": round(first), "cold_per_hour": round(last), "ratio": round(first / last, 1)}
    figures["judge_share"] = round(share, 3)
    card.finish("rate", figures | {arm.name: round(arm.per_hour) for arm in arms})


if __name__ == "__main__":
    main()
