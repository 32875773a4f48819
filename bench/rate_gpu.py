"""Candidates judged an hour on a GPU: the fast tier of a running engine against a cold engine at full depth for each candidate.

    python bench/rate_gpu.py FOLDER [--candidates 6] [--others 3]     FOLDER: see bench/random_llama.py

As bench/rate.py, with the captured forward (recipes/llama/graph) as incumbent, and variants of it, good, equal and wrong, as
candidates. The decomposition takes one saving away at a time, on the first `--others` candidates. The cold arm also tells the
time from nothing to the first token: hashing of the weights is not in it, since only the ledger needs that. Weights are random.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import card
from engine_gpu import RECIPES, first_answer, first_token
from house import CONTRACT
from rate import CONTRACT as RATE
from rate import Arm
from reforward.app.calibrate import FixedPairs
from reforward.app.config import load_config
from reforward.app.settings import Settings
from reforward.app.subjects import Loaded, load_subject
from reforward.app.subjects import open_engine as start
from reforward.app.trees import read_tree
from reforward.app.trust.rates import renamed
from reforward.app.workloads import workloads
from reforward.domain.candidate import Candidate
from reforward.engine.cpu import CpuEngine

ROPE = """

class Tabled(Forward):
    \"\"\"Cosines and sines of all positions are made once.\"\"\"

    def __init__(self, build):
        super().__init__(build)
        places = torch.arange(build.limits.length, device=build.device)
        self.table = rope_angles(places, build.spec, build.dtype)

    def layer(self, x, layer, batch, cos, sin):
        if all(segment.length == 1 for segment in batch.segments):
            cos, sin = (part[batch.start] for part in self.table)
        return super().layer(x, layer, batch, cos, sin)


Forward = Tabled
"""
SKIPS = """

class Skipping(Forward):
    \"\"\"Leaves the second layer out.\"\"\"

    def layer(self, x, layer, batch, cos, sin):
        return x if layer == 1 else super().layer(x, layer, batch, cos, sin)


Forward = Skipping
"""
FLASH = """

def look(q, keys, values, seen):
    \"\"\"PyTorch's own attention.\"\"\"
    held = [part.repeat_interleave(q.shape[2], dim=1) for part in (keys, values)]
    flat = q.flatten(1, 2)[:, :, None]
    return F.scaled_dot_product_attention(flat, *held, attn_mask=seen).view(q.shape)
"""
TWICE = """

class Twice(Forward):
    \"\"\"Computes every decode step two times.\"\"\"

    def step(self, batch, logits):
        super().step(batch, logits)
        super().step(batch, logits)


Forward = Twice
"""


def pool(stock: Candidate) -> tuple[Candidate, list[Candidate]]:
    """Incumbent and candidates: a gain, equal code, a loss, a wrong one, other kernels, the stock itself."""
    base = read_tree(RECIPES / "llama" / "graph", stock)

    def more(lines: str) -> Candidate:
        return base.with_files({base.entry_file: (base.text_of(base.entry_file) or "") + lines})

    return base, [more(ROPE), renamed(base, 0), more(TWICE), more(SKIPS), more(FLASH), stock]


@contextmanager
def opened(loaded: Loaded, threads: int) -> Iterator[CpuEngine]:
    """A fresh engine on the device."""
    engine = start(loaded, replace(load_config(threads=threads), device="cuda"), CONTRACT)
    try:
        yield engine
    finally:
        engine.close()


def persistent(arm: Arm, engine: CpuEngine, loaded: Loaded, chosen: list[Candidate]) -> None:
    """All candidates on one engine, whose start, references and noise are not counted."""
    subject = engine.subject
    measurer = arm.measurer(engine, loaded)
    workload = workloads(loaded, engine, Settings(requests=4, length_scale=1 / 16)).search
    try:
        if arm.early:
            arm.warm(measurer, loaded, workload)
        else:
            measurer.measure(chosen[0], chosen[0], workload, "fast", FixedPairs(1))  # starts the reference workers
        arm.checking_s = 0.0
        for candidate in chosen:
            begun = time.perf_counter()
            arm.judge(measurer, loaded, workload, candidate)
            arm.seconds.append(time.perf_counter() - begun)
    finally:
        measurer.close()
        engine.subject = subject


def cold(arm: Arm, loaded: Loaded, threads: int, chosen: list[Candidate]) -> list[float]:
    """Everything from nothing for each candidate; the seconds to its first token, which takes a worker that is not counted."""
    firsts: list[float] = []
    for candidate in chosen:
        begun = time.perf_counter()
        with opened(loaded, threads) as engine:
            ready = time.perf_counter()
            firsts.append(ready - begun + first_answer(engine, candidate)[1])
            extra = time.perf_counter() - ready
            workload = workloads(loaded, engine, Settings(requests=4, length_scale=1 / 16)).search
            measurer = arm.measurer(engine, loaded)
            arm.judge(measurer, loaded, workload, candidate)
            measurer.close()
        arm.seconds.append(time.perf_counter() - begun - extra)
    return firsts


def swaps(engine: CpuEngine, chosen: dict[str, Candidate], repeats: int) -> dict[str, list[float]]:
    """Frozen to first token on the running engine."""
    taken: dict[str, list[float]] = {}
    for name, candidate in chosen.items():
        first_token(engine, candidate)
        taken[name] = [first_answer(engine, candidate)[1] for _ in range(repeats)]
    return taken


def main() -> None:
    """Swaps, four arms, two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--others", type=int, default=3)
    parser.add_argument("--colds", type=int, default=3)
    args = parser.parse_args()
    threads = card.machine().cores
    loaded = load_subject(str(args.folder), load_config(threads=threads))
    base, candidates = pool(loaded.stock)
    chosen, few = candidates[: args.candidates], candidates[: args.others]
    card.ceiling("the timed passes themselves; starting, loading, checking and deciding is what an engine can hide")
    early = Arm("persistent, fast tier, early stopping", early=True, deep=False)
    whole = Arm("persistent, fast tier, all pairs", early=False, deep=False)
    deep = Arm("persistent, full depth, all pairs", early=False, deep=True)
    fresh = Arm("cold engine each, full depth, all pairs", early=False, deep=True)
    arms = [early, whole, deep, fresh]
    for arm in arms:
        arm.incumbent = base
    with opened(loaded, threads) as engine:
        nbytes = engine.server.opened.nbytes if engine.server else 0
        device = engine.target.machine.devices[0]
        taken = swaps(engine, {"stock": loaded.stock, "captured": base}, 5)
        for arm, mine in ((early, chosen), (whole, few), (deep, few)):
            if mine:
                persistent(arm, engine, loaded, mine)
                card.console.print(f"{arm.name}: {card.spread(arm.seconds, 2)} s, {' '.join(arm.rulings)}")
    firsts = cold(fresh, loaded, threads, candidates[: args.colds])
    report(arms, taken, firsts, {"device": device, "weights_bytes": nbytes, "weights": "random"})


def report(arms: list[Arm], taken: dict[str, list[float]], firsts: list[float], about: dict[str, object]) -> None:
    """Tables and the JSON line."""
    done = [arm for arm in arms if arm.seconds]
    rows = [[arm.name, card.spread(arm.seconds, 2), f"{arm.per_hour:.0f}", " ".join(arm.rulings)] for arm in done]
    title = f"seconds per candidate at a resolution of {RATE.resolution:.0%}, median [min, max]"
    card.table(title, ["arm", "s", "per hour", "rulings"], rows)
    rows = [[name, card.spread(values)] for name, values in {**taken, "cold": firsts}.items()]
    card.table("frozen to first token, s", ["", "median [min, max]"], rows)
    share = arms[0].checking_s / sum(arms[0].seconds)
    ratio = arms[0].per_hour / arms[-1].per_hour
    card.console.print(f"ratio {ratio:.1f}; references and rules take {share:.0%} of a session; {about}")
    figures = {f"per_hour.{arm.name}": round(arm.per_hour, 1) for arm in done}
    figures |= {f"swap_s.{name}": round(statistics.median(values), 3) for name, values in taken.items()}
    figures |= {"cold_s": round(statistics.median(firsts), 2), "ratio": round(ratio, 1), "judge_share": round(share, 3)}
    card.finish("rate_gpu", figures | about)


if __name__ == "__main__":
    main()
