"""The engine of an NVIDIA GPU on Llama-3.2-1B with random weights: right answers, swap, decode, crashes, memory.

    python bench/engine_gpu.py FOLDER [--parts right,swap,decode,crash,memory]     FOLDER: see bench/random_llama.py

Every time is the client's clock around the whole way: socket, worker, device, logits row in host memory. Weights are random.
"""

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import card
from house import open_engine
from reforward.app.subjects import Loaded
from reforward.app.trees import read_tree
from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed
from reforward.domain.ports import LmWorker
from reforward.domain.spec import Limits, Segment
from reforward.engine.cpu import CpuEngine
from reforward.engine.cuda.engine import CudaEngine
from reforward.measure.arrays import rows_of

RECIPES = Path(__file__).parent.parent / "recipes"
PROMPT = [100 + 37 * i for i in range(32)]
STEPS = 32
LIMITS = Limits(slots=1, length=256, tokens=64, rows=STEPS, steps=STEPS)
ILLEGAL = """

class Broken(Forward):
    def __init__(self, build):
        super().__init__(build)
        source = "__global__ void bad(int *p) { p[1LL << 38] = 1; }"
        self.bad = torch.cuda._compile_kernel(source, "bad")

    def step(self, batch, logits):
        self.bad((1, 1, 1), (1, 1, 1), (logits.view(torch.int32),))
        super().step(batch, logits)


Forward = Broken
"""
STORE = """

class Broken(Forward):
    def step(self, batch, logits):
        self.weights["model.norm.weight"].add_(1)
        super().step(batch, logits)


Forward = Broken
"""
GAP_S = 1.0
"""After this long, memory of a process that has ended is free by NVML's books."""


class Bench:
    """One folder, one engine, the candidates that are compared."""

    def __init__(self, folder: Path, engine: CudaEngine, loaded: Loaded, threads: int) -> None:
        self.folder, self.engine, self.loaded, self.threads = folder, engine, loaded, threads
        self.figures: dict[str, Any] = {"device": engine.target.machine.devices[0], "weights": "random"}
        stock = loaded.stock
        self.candidates = {
            "stock": stock,
            "captured": read_tree(RECIPES / "llama" / "graph", stock),
            "h200": read_tree(RECIPES / "llama-3.2-1b" / "h200", stock),
        }

    def start(self, candidate: Candidate, limits: Limits = LIMITS, *, oracle: bool = False) -> LmWorker:
        assert self.engine.spec is not None
        prepared = self.engine.prepare(candidate)
        return self.engine.start_lm(prepared, depth=self.engine.spec.layers, limits=limits, oracle=oracle)


def prefill(worker: LmWorker, slot: int = 0) -> int:
    """The first token after the prompt."""
    return worker.step(PROMPT, [Segment(slot=slot, start=0, length=len(PROMPT))], [len(PROMPT) - 1], 0)[0]


def first_token(engine: CpuEngine, candidate: Candidate) -> int:
    """Prepare, start, prefill; the worker ends."""
    return first_answer(engine, candidate)[0]


def first_answer(engine: CpuEngine, candidate: Candidate) -> tuple[int, float]:
    """The token, and the seconds from the frozen source to it; the end of the worker comes after."""
    assert engine.spec is not None
    begun = time.perf_counter()
    worker = engine.start_lm(engine.prepare(candidate), depth=engine.spec.layers, limits=LIMITS)
    try:
        return prefill(worker), time.perf_counter() - begun
    finally:
        worker.close()


def teach(worker: LmWorker, tokens: list[int]) -> np.ndarray:
    """Logits of the last `STEPS` of `tokens`, fed in one prompt and then one by one."""
    fed, rest = tokens[: -STEPS + 1], tokens[-STEPS + 1 :]
    worker.step(fed, [Segment(slot=0, start=0, length=len(fed))], [len(fed) - 1], 0)
    for i, token in enumerate(rest):
        worker.step([token], [Segment(slot=0, start=len(fed) + i, length=1)], [0], 1 + i)
    return rows_of(worker.rows(0, STEPS)).copy()


def right(bench: Bench) -> None:
    """All forwards, fed with the same tokens, against the stock forward in float64 on the CPU."""
    tokens = [int(t) for t in np.random.default_rng(0).integers(0, 128256, 32 + STEPS)]
    with open_engine(str(bench.folder), bench.threads, "cpu") as (host, loaded):
        worker = host.start_lm(host.prepare(loaded.stock), depth=loaded.subject.depth, limits=LIMITS, oracle=True)
        exact = teach(worker, tokens).astype(np.float64)
        worker.close()
    rows: list[list[str]] = []
    for name, candidate in [("float64 on the device", bench.loaded.stock), *bench.candidates.items()]:
        worker = bench.start(candidate, oracle=name.startswith("float64"))
        made = teach(worker, tokens)
        worker.close()
        error = float(np.linalg.norm(made - exact) / np.linalg.norm(exact))
        same = float((made.argmax(1) == exact.argmax(1)).mean())
        rows.append([name, f"{error:.2e}", f"{same:.0%}"])
        bench.figures[f"error.{name}"] = error
    card.table(
        "relative error of logits against float64 on the CPU, teacher-forced", ["forward", "error", "top-1"], rows
    )


def swap(bench: Bench, repeats: int, colds: int) -> None:
    """Frozen to first correct token on the running engine, and from nothing."""
    expected = first_token(bench.engine, bench.loaded.stock)
    rows: list[list[str]] = []
    for name, candidate in bench.candidates.items():
        begun = time.perf_counter()
        prepared = bench.engine.prepare(candidate)
        prepared_s = time.perf_counter() - begun
        taken = [checked(first_answer(bench.engine, candidate), expected) for _ in range(repeats + 1)][1:]
        cold = [checked(cold_answer(bench, candidate), expected) for _ in range(colds)]
        ratio = statistics.median(cold) / statistics.median(taken)
        rows.append([name, card.spread(taken), card.spread(cold), f"{ratio:.0f}x", f"{prepared_s:.1f}"])
        bench.figures |= {f"swap_s.{name}": statistics.median(taken), f"cold_s.{name}": statistics.median(cold)}
        bench.figures[f"packed_bytes.{name}"] = prepared.packed_bytes
    header = ["candidate", "swap", "cold start", "ratio", "build and pack, once"]
    card.table("frozen to first correct token, s, median [min, max]", header, rows)


def checked(answer: tuple[int, float], expected: int) -> float:
    """Its seconds, if the token is the right one."""
    if answer[0] != expected:
        raise RuntimeError(f"first token {answer[0]} differs from the stock forward's {expected}")
    return answer[1]


def cold_answer(bench: Bench, candidate: Candidate) -> tuple[int, float]:
    """From a second engine, from nothing, on the same device; its weights come from the page cache, builds from theirs."""
    begun = time.perf_counter()
    with open_engine(str(bench.folder), bench.threads, "cuda") as (engine, _):
        token, _ = first_answer(engine, candidate)
        return token, time.perf_counter() - begun


def decode(bench: Bench) -> None:
    """ms per token as the client sees them, from `step` and from `run`."""
    rows: list[list[str]] = []
    for name, candidate in bench.candidates.items():
        row = [name]
        for width in (1, 4):
            limits = Limits(slots=width, length=256, tokens=64, rows=STEPS * width, steps=STEPS)
            worker = bench.start(candidate, limits)
            last = [prefill(worker, slot) for slot in range(width)]
            slots = list(range(width))
            for how in (by_step, by_run):
                how(worker, last, slots)
                values = [how(worker, last, slots) for _ in range(5)]
                row.append(card.spread(values))
                bench.figures[f"ms.{name}.{how.__name__}.batch{width}"] = statistics.median(values)
            worker.close()
        rows.append(row)
    header = ["forward", "step, batch 1", "run, batch 1", "step, batch 4", "run, batch 4"]
    card.table(f"ms per step, context 32 to {32 + STEPS}, median [min, max] of 5", header, rows)


def by_step(worker: LmWorker, last: list[int], slots: list[int]) -> float:
    begun = time.perf_counter()
    for i in range(STEPS):
        segments = [Segment(slot=slot, start=len(PROMPT) + i, length=1) for slot in slots]
        last = worker.step(last, segments, slots, i * len(slots))
    return (time.perf_counter() - begun) / STEPS * 1e3


def by_run(worker: LmWorker, last: list[int], slots: list[int]) -> float:
    begun = time.perf_counter()
    worker.run(last, slots, [len(PROMPT)] * len(slots), STEPS, 0)
    return (time.perf_counter() - begun) / STEPS * 1e3


def crash(bench: Bench, count: int) -> None:
    """Each crash is followed by a fresh worker's first token; afterwards weights and device memory are looked at."""
    stock, engine = bench.loaded.stock, bench.engine
    expected = first_token(engine, stock)
    swept, before = engine.sweep(), engine.monitor.used_bytes()
    server = engine.server
    rows: list[list[str]] = []
    for name, lines in (("illegal access", ILLEGAL), ("store to a weight", STORE)):
        bad, reasons, taken = breaking(stock, lines), Counter[str](), list[float]()
        for _ in range(count):
            worker = bench.start(bad)
            begun = time.perf_counter()
            try:
                prefill(worker)
                reasons["no failure"] += 1
            except CandidateFailed as failure:
                reasons[failure.reason.splitlines()[0][:90]] += 1
            finally:
                worker.close()
            gone = time.perf_counter() - begun
            taken.append(gone + checked(first_answer(engine, stock), expected))
        p50, p99 = (float(np.percentile(taken, q)) for q in (50, 99))
        rows.append([name, str(count), f"{p50:.3f}", f"{p99:.3f}", "; ".join(f"{n} x {r}" for r, n in reasons.items())])
        bench.figures |= {f"crash_p50_s.{name}": p50, f"crash_p99_s.{name}": p99}
    grown = {"crashes": used_after(engine) - before}
    for _ in range(50):
        first_token(engine, bench.candidates["captured"])
    grown["50 captures"] = used_after(engine) - before
    assert engine.server is server
    assert engine.sweep().changed == ()
    card.table("faulting call to the next worker's first token, s", ["fault", "times", "p50", "p99", "reasons"], rows)
    console = ", ".join(f"after {name} {value:+,} bytes" for name, value in grown.items())
    card.console.print(
        f"device memory against before: {console}; weights unchanged; a sweep took {swept.seconds:.4f} s"
    )
    bench.figures |= {f"grown_bytes.{name}": value for name, value in grown.items()}


def breaking(stock: Candidate, lines: str) -> Candidate:
    """The stock forward with `lines` at its end."""
    return stock.with_files({stock.entry_file: (stock.text_of(stock.entry_file) or "") + lines})


def used_after(engine: CudaEngine) -> int:
    time.sleep(GAP_S)
    return engine.monitor.used_bytes()


def memory(bench: Bench, rounds: int) -> None:
    """What each resident costs on the device by NVML, and rounds of workers that start, answer, pause and end."""
    engine, stock = bench.engine, bench.loaded.stock
    first_token(engine, stock)
    before = used_after(engine)
    marks, workers = [("engine without workers", before)], list[LmWorker]()
    for count in (1, 2, 3):
        workers.append(bench.start(stock))
        prefill(workers[-1])
        marks.append((f"{count} workers", used_after(engine)))
    for worker in workers:
        worker.close()
    with open_engine(str(bench.folder), bench.threads, "cuda") as (second, _):
        first_token(second, stock)
        marks.append(("a second engine", used_after(engine)))
    marks.append(("all of them gone", used_after(engine)))
    for _ in range(rounds):
        pair = [bench.start(bench.candidates["captured"]), bench.start(stock)]
        for worker in pair:
            prefill(worker)
            worker.pause()
        for worker in pair:
            worker.close()
    marks.append((f"{rounds} rounds of two workers later", used_after(engine)))
    assert engine.sweep().changed == ()
    rows = [[name, f"{value:,}", f"{value - before:+,}"] for name, value in marks]
    card.table("device memory in use, bytes", ["with", "bytes", "against the engine alone"], rows)
    bench.figures |= {f"used_bytes.{name}": value for name, value in marks}
    bench.figures["weights_bytes"] = engine.server.opened.nbytes if engine.server else None


def main() -> None:
    """The parts that were asked for, each with its table; what was measured before a part failed is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", default="right,swap,decode,crash,memory")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--colds", type=int, default=3)
    parser.add_argument("--crashes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    parts: dict[str, Callable[[Bench], None]] = {
        "right": right,
        "swap": lambda bench: swap(bench, args.repeats, args.colds),
        "decode": decode,
        "crash": lambda bench: crash(bench, args.crashes),
        "memory": lambda bench: memory(bench, args.rounds),
    }
    card.ceiling("a context on the device (0.16 s), loading of kernels, one prefill of 32 tokens; weights are random")
    threads = card.machine().cores
    with open_engine(str(args.folder), threads, "cuda") as (engine, loaded):
        assert isinstance(engine, CudaEngine)
        bench = Bench(args.folder, engine, loaded, threads)
        for name in args.parts.split(","):
            begun = time.perf_counter()
            parts[name](bench)
            card.console.print(f"{name}: {time.perf_counter() - begun:.0f} s")
    card.finish("engine_gpu", bench.figures)


if __name__ == "__main__":
    main()
