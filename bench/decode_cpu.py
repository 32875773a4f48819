"""Decode tok/s of SmolLM2-135M on a CPU, all arms interleaved in one run: stock, best found, what a user would pick, the floor.

python bench/decode_cpu.py [--repeats 7] [--tokens 16] [--dtypes float32,bfloat16] [--batches 1,4] [--recipe FOLDER]

The floor is read in every round between the arms, since neighbours change what the memory gives from second to second: an arm's
share of it is the median over the rounds, each against its own round's floor.
"""

import argparse
import importlib.util
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import card
from arms import DecodeArm, EngineArm, ProcessArm
from bandwidth import Reader
from house import best_known, open_engine, smollm2_folder
from reforward.app.trees import read_tree

BYTES = {"float32": 4, "bfloat16": 2}
PARAMETERS = 134_515_008


def main() -> None:
    """One table per precision and batch, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--batches", default="1,4")
    parser.add_argument("--skip", default="", help="arms to leave out, by name")
    parser.add_argument("--recipe", type=Path, help="a source tree that is measured as one more arm")
    args = parser.parse_args()
    threads = card.machine().cores
    figures: dict[str, Any] = {}
    for dtype in args.dtypes.split(","):
        for batch in map(int, args.batches.split(",")):
            figures[f"{dtype}_b{batch}"] = one(dtype, batch, threads, args)
    card.finish("decode_cpu", figures)


def one(dtype: str, batch: int, threads: int, args: argparse.Namespace) -> dict[str, Any]:
    """All arms of one precision and batch, interleaved `repeats` times."""
    longest = 8 + args.tokens * (args.repeats + 1)
    subject = "smollm2" if dtype == "float32" else "smollm2-bf16"
    with open_engine(subject, threads) as (engine, loaded):
        origin, best = best_known(engine, loaded)
        card.console.print(f"best: {origin}, {best.id}")
        makers: dict[str, Callable[[], DecodeArm]] = {
            "stock": lambda: EngineArm(engine, loaded.stock, batch, longest),
            "best": lambda: EngineArm(engine, best, batch, longest),
            **peers(subject, dtype, batch, threads),
        }
        if args.recipe:
            makers["recipe"] = lambda: EngineArm(engine, read_tree(args.recipe, loaded.stock), batch, longest)
        wanted = {name: make for name, make in makers.items() if name not in args.skip.split(",")}
        rows, reads = measure(wanted, threads, args)
    floors = [batch * rate * 1e9 / (PARAMETERS * BYTES[dtype]) for rate in reads]
    card.ceiling(
        f"{dtype} batch {batch}: {card.spread(floors, 1)} tok/s at {card.spread(reads, 1)} GB/s, read from huge pages"
    )
    figures: dict[str, Any] = {
        "read_gb_s": round(statistics.median(reads), 2),
        "floor": round(statistics.median(floors), 1),
    }
    table: list[list[str]] = []
    for name, seconds in rows.items():
        rates = [batch * args.tokens / second for second in seconds]
        share = statistics.median(rate / floor for rate, floor in zip(rates, floors, strict=True))
        figures |= {name: round(statistics.median(rates), 2), f"{name}_share": round(share, 3)}
        table.append([name, card.spread(rates, 1), f"{share:.0%}"])
    missing = [name for name in ("transformers", "compile", "llamacpp") if name not in rows]
    card.table(f"{dtype} batch {batch}", ["arm", "tok/s median [min, max]", "share of the floor"], table)
    if missing:
        card.console.print(f"not run: {', '.join(missing)} (not installed, not applicable, or skipped)")
    return figures | dict.fromkeys(missing)


def peers(subject: str, dtype: str, batch: int, threads: int) -> dict[str, Callable[[], DecodeArm]]:
    """What a user would pick instead, as far as it is installed here."""
    folder = smollm2_folder(subject)
    common = [str(folder), "--batch", str(batch), "--threads", str(threads)]
    found: dict[str, Callable[[], DecodeArm]] = {}
    if importlib.util.find_spec("transformers"):
        found["transformers"] = lambda: ProcessArm("arm_transformers.py", common)
        found["compile"] = lambda: ProcessArm("arm_transformers.py", [*common, "--compile"])
    if importlib.util.find_spec("llama_cpp") and batch == 1:
        gguf = write_gguf(folder, dtype)
        found["llamacpp"] = lambda: ProcessArm("arm_llamacpp.py", [str(gguf), "--threads", str(threads)])
    return found


def write_gguf(folder: Path, dtype: str) -> Path:
    """The same weights at the same precision as a GGUF, for llama.cpp."""
    from gguf_weights import write

    return write(folder, Path(tempfile.gettempdir()) / f"smollm2-{dtype}.gguf", dtype)


def measure(
    makers: dict[str, Callable[[], DecodeArm]], threads: int, args: argparse.Namespace
) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds per round for each arm, and GB/s of each round: arms take turns in alternating order, memory is read between them."""
    reader = Reader(threads, huge=True)
    arms = {name: make() for name, make in makers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    reads: list[float] = []
    try:
        for repeat in range(args.repeats):
            names = list(arms) if repeat % 2 == 0 else list(arms)[::-1]
            rates: list[float] = []
            for name in names:
                rates += [reader.go(), reader.go()]
                seconds[name].append(arms[name].go(args.tokens))
            reads.append(statistics.median(rates))
    finally:
        for arm in arms.values():
            arm.close()
    return seconds, reads


if __name__ == "__main__":
    main()
