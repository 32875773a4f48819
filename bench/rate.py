"""Candidates judged per hour at the fast tier on persistent engines, against one fresh cold engine per candidate at full depth.

    python bench/rate.py [--candidates 6]

The same candidates, the same judge, the same number of timed tokens in both arms. The cold arm does what an optimiser does
that restarts its engine for each candidate: start, load, measure at full depth, end. The decomposition takes one saving away
at a time: no restart, then the truncated tier, then early stopping of clear losers.
"""

import argparse
import time
from dataclasses import replace

import card
from house import open_engine
from reforward.app.settings import Settings
from reforward.app.subjects import Loaded
from reforward.app.workloads import Traffic, workloads
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.ports import Engine
from reforward.domain.subject import Tier
from reforward.domain.verdict import Verdict
from reforward.judge.standard import StandardJudge
from reforward.judge.stopping import StandardStopping
from reforward.measure.measurer import Measurer
from reforward.propose.passes import PASSES
from reforward.propose.search import tools_here

RESOLUTION = 0.08


class AllPairs:
    """No early stopping: every session runs to its last pair."""

    def __init__(self, pairs: int) -> None:
        self.pairs = pairs

    def observe(self, samples):
        """Stop at the last pair only."""
        return "stop" if len({sample.launch for sample in samples}) >= self.pairs else "continue"


def candidates(loaded: Loaded, count: int) -> list[Candidate]:
    """Single passes, gainful and not, in the order of the registry."""
    tools = tools_here()
    made = (one.apply(loaded.stock) for one in PASSES if not one.slow and set(one.needs) <= tools)
    return [candidate for candidate in made if candidate is not None][:count]


def judge_one(
    engine: Engine, loaded: Loaded, traffic: Traffic, contract: Contract, candidate: Candidate, *, early: bool
) -> Verdict:
    """One fast-tier session to a verdict, at whatever depth the subject's fast tier has."""
    assert loaded.tokenizer is not None
    measurer = Measurer(engine, loaded.stock, contract, encode=loaded.tokenizer.encode)
    tier: Tier = "fast"
    stopping = StandardStopping(contract, tier, 0) if early else AllPairs(contract.fast_pairs)
    try:
        facts, outputs = measurer.measure(candidate, loaded.stock, traffic.search, tier, stopping)
        return StandardJudge().rule(facts, outputs, contract)
    finally:
        measurer.close()


def persistent(engine, loaded, traffic, contract, pool, *, early):
    """Seconds per candidate on an engine that stays, with reference workers that stay."""
    measurer = Measurer(engine, loaded.stock, contract, encode=loaded.tokenizer.encode)
    seconds: list[float] = []
    rulings: list[str] = []
    try:
        for candidate in pool:
            begun = time.perf_counter()
            stopping = StandardStopping(contract, "fast", 0) if early else AllPairs(contract.fast_pairs)
            facts, outputs = measurer.measure(candidate, loaded.stock, traffic.search, "fast", stopping)
            rulings.append(StandardJudge().rule(facts, outputs, contract).ruling)
            seconds.append(time.perf_counter() - begun)
    finally:
        measurer.close()
    return seconds, rulings


def main() -> None:
    """Four arms, one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=6)
    args = parser.parse_args()
    threads = card.machine().cores
    contract = Contract(numerics="reassociated", min_gain=RESOLUTION, resolution=RESOLUTION)
    settings = Settings(length_scale=1 / 16, requests=4)
    card.ceiling("one pair of launches and its passes; everything else is overhead that the engine should hide")
    rows: list[list[str]] = []
    per_hour: dict[str, float] = {}
    with open_engine("smollm2", threads) as (engine, loaded):
        traffic = workloads(loaded, engine, settings)
        pool = candidates(loaded, args.candidates)
        for candidate in pool:
            engine.prepare(candidate)
        for name, early, deep in (
            ("persistent, fast tier, early stopping", True, False),
            ("persistent, fast tier, all pairs", False, False),
            ("persistent, full depth, all pairs", False, True),
        ):
            kept = engine.subject
            engine.subject = replace(kept, fast_depth=kept.depth) if deep else kept
            seconds, rulings = persistent(engine, loaded, traffic, contract, pool, early=early)
            engine.subject = kept
            per_hour[name] = 3600 * len(seconds) / sum(seconds)
            rows.append([name, card.spread(seconds, 2), f"{per_hour[name]:.0f}", " ".join(rulings)])
    seconds, rulings = [], []
    for candidate in pool:
        begun = time.perf_counter()
        with open_engine("smollm2", threads) as (engine, loaded):
            engine.subject = replace(engine.subject, fast_depth=engine.subject.depth)
            rulings.append(judge_one(engine, loaded, traffic, contract, candidate, early=False).ruling)
        seconds.append(time.perf_counter() - begun)
    name = "cold engine per candidate, full depth, all pairs"
    per_hour[name] = 3600 * len(seconds) / sum(seconds)
    rows.append([name, card.spread(seconds, 2), f"{per_hour[name]:.0f}", " ".join(rulings)])
    card.table("seconds per candidate, median [min, max]", ["arm", "s", "per hour", "rulings"], rows)
    first = per_hour["persistent, fast tier, early stopping"]
    figures = {
        "persistent_per_hour": round(first),
        "cold_per_hour": round(per_hour[name]),
        "ratio": round(first / per_hour[name], 1),
    }
    figures |= {f"per_hour: {arm}": round(value) for arm, value in per_hour.items()}
    card.finish("rate", figures)


if __name__ == "__main__":
    main()
