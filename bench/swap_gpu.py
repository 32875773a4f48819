"""Where the time of a swap on a GPU goes: moments inside the worker, and what the first use of each operation costs.

    python bench/swap_gpu.py FOLDER [--candidates stock,captured,h200]     FOLDER: see bench/random_llama.py

The candidate itself tells its moments (a monotonic clock that all processes share) and runs its first step operation by operation,
each waited for; so the sums are larger than an undisturbed swap, which stands beside.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import card
from engine_gpu import LIMITS, Bench, first_answer, first_token, prefill
from house import open_engine
from reforward.domain.candidate import Candidate
from reforward.engine.cuda.engine import CudaEngine

TELLING = """

import json as _json, time as _time
from torch.utils._python_dispatch import TorchDispatchMode as _Mode

_moments = {"imported": _time.monotonic()}


class _Timed(_Mode):
    def __init__(self):
        super().__init__()
        self.first, self.again = {}, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        begun = _time.perf_counter()
        made = func(*args, **(kwargs or {}))
        torch.cuda.synchronize()
        taken, name = _time.perf_counter() - begun, str(func)
        if name in self.first:
            self.again[name] = self.again.get(name, 0.0) + taken
        else:
            self.first[name] = taken
        return made


class _Told(Forward):
    steps = 0

    def __init__(self, build):
        _moments["device"] = _time.monotonic()
        torch.zeros(1, device=build.device)
        torch.cuda.synchronize()
        _moments["first tensor"] = _time.monotonic()
        super().__init__(build)
        torch.cuda.synchronize()
        _moments["made"] = _time.monotonic()

    def step(self, batch, logits):
        if any(segment.length > 1 for segment in batch.segments):
            self.steps += 1
            _moments[f"step {self.steps}"] = _time.monotonic()
            with _Timed() as mode:
                super().step(batch, logits)
            torch.cuda.synchronize()
            _moments[f"stepped {self.steps}"] = _time.monotonic()
            cost = sorted(mode.first.items(), key=lambda item: -item[1])[:12]
            print(_json.dumps({"moments": _moments, "first": cost, "again": sum(mode.again.values())}), flush=True)
        else:
            super().step(batch, logits)


Forward = _Told
"""


def telling(candidate: Candidate) -> Candidate:
    """The same forward, which tells what it does when."""
    entry = candidate.entry_file
    return candidate.with_files({entry: (candidate.text_of(entry) or "") + TELLING})


def anatomy(bench: Bench, name: str) -> None:
    """One candidate: five plain swaps, then one that tells."""
    plain, engine = bench.candidates[name], bench.engine
    first_token(engine, plain)
    taken = [first_answer(engine, plain)[1] for _ in range(5)]
    candidate = telling(plain)
    prepared = engine.prepare(candidate)
    begun = time.monotonic()
    worker = engine.start_lm(prepared, depth=bench.loaded.subject.depth, limits=LIMITS)
    ready = time.monotonic()
    prefill(worker)
    answered = time.monotonic()
    prefill(worker)
    lines = [json.loads(line) for line in worker.process.log_tail().splitlines() if line.startswith("{")]
    worker.close()
    moments = lines[-1]["moments"] | {"ready (client)": ready, "answered (client)": answered}
    told = sorted(((moment - begun, what) for what, moment in moments.items()))
    card.console.print(f"\n{name}: swap {card.spread(taken)} s; moments: " + ", ".join(f"{w} {t:.3f}" for t, w in told))
    for number, line in enumerate(lines[:2], 1):
        firsts = ", ".join(f"{op.removeprefix('aten.')} {1e3 * cost:.0f}" for op, cost in line["first"])
        card.console.print(f"  prefill {number}: first use, ms: {firsts}; all later uses {1e3 * line['again']:.0f}")
    bench.figures |= {f"swap_s.{name}": statistics.median(taken), f"moments.{name}": {w: round(t, 4) for t, w in told}}


def main() -> None:
    """Each candidate in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--candidates", default="stock,captured,h200")
    args = parser.parse_args()
    card.ceiling("a context on the device and one prefill of 32 tokens; weights are random")
    threads = card.machine().cores
    with open_engine(str(args.folder), threads, "cuda") as (engine, loaded):
        assert isinstance(engine, CudaEngine)
        bench = Bench(args.folder, engine, loaded, threads)
        for name in args.candidates.split(","):
            anatomy(bench, name)
    card.finish("swap_gpu", bench.figures)


if __name__ == "__main__":
    main()
