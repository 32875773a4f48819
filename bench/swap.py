"""Seconds from 'candidate frozen' to 'first correct output' on the persistent engine, against a cold start of the same engine.

    python bench/swap.py [--repeats 7]

Both arms answer the same prompt with the same candidate; an answer counts when its token equals the stock forward's.
"""

import argparse
import statistics
import time

import card
from house import best_known, open_engine, packing_variant
from reforward.app.subjects import Loaded
from reforward.domain.candidate import Candidate
from reforward.domain.ports import Engine
from reforward.domain.spec import Limits, Segment

PROMPT = [1000 + 37 * i for i in range(32)]


def first_token(engine: Engine, candidate: Candidate) -> int:
    """Prepare (from cache), start, prefill: the first token that a client would see."""
    assert engine.spec is not None
    limits = Limits(slots=1, length=64, tokens=len(PROMPT), rows=1)
    worker = engine.start_lm(engine.prepare(candidate), depth=engine.spec.layers, limits=limits)
    try:
        return worker.step(PROMPT, [Segment(slot=0, start=0, length=len(PROMPT))], [len(PROMPT) - 1], 0)[0]
    finally:
        worker.close()


def timed(engine: Engine, candidate: Candidate, expected: int) -> float:
    """Seconds to the first token, which must be right."""
    begun = time.perf_counter()
    token = first_token(engine, candidate)
    seconds = time.perf_counter() - begun
    if token != expected:
        raise RuntimeError(f"first token {token} differs from the stock forward's {expected}")
    return seconds


def cold(threads: int, candidate: Candidate, expected: int) -> float:
    """A new engine: processes, torch, weights from the page cache, then the same first token."""
    begun = time.perf_counter()
    with open_engine("smollm2", threads) as (engine, _):
        timed(engine, candidate, expected)
        return time.perf_counter() - begun


def main() -> None:
    """Swap and cold start in turns, for the stock, the best, and a candidate that packs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    threads = card.machine().cores
    card.ceiling("a fork of a process with torch imported, plus one prefill of 32 tokens")
    figures: dict[str, float] = {}
    rows: list[list[str]] = []
    with open_engine("smollm2", threads) as (engine, loaded):
        expected = first_token(engine, loaded.stock)
        for name, candidate in variants(engine, loaded).items():
            timed(engine, candidate, expected)
            swaps: list[float] = []
            colds: list[float] = []
            for _ in range(args.repeats):
                swaps.append(timed(engine, candidate, expected))
                colds.append(cold(threads, candidate, expected))
            ratio = statistics.median(colds) / statistics.median(swaps)
            rows.append([name, card.spread(swaps), card.spread(colds), f"{ratio:.1f}x"])
            suffix = "" if name == "stock" else f"_{name}"
            figures |= {f"swap_s{suffix}": statistics.median(swaps), f"cold_s{suffix}": statistics.median(colds)}
            figures[f"ratio{suffix}"] = ratio
    card.table(
        "frozen to first correct token, s, median [min, max]", ["candidate", "swap", "cold start", "ratio"], rows
    )
    card.finish("swap", {name: round(value, 3) for name, value in figures.items()})


def variants(engine: Engine, loaded: Loaded) -> dict[str, Candidate]:
    """The stock forward, the best known one, and one that repacks weights."""
    return {"stock": loaded.stock, "best": best_known(engine, loaded)[1], "packed": packing_variant(loaded)}


if __name__ == "__main__":
    main()
