"""Memory of the engine on SmolLM2: the weights once however many workers run, by proportional set size (PSS).

python bench/memory.py [--workers 4]
"""

import argparse
import resource
from pathlib import Path

import card
from house import open_engine
from reforward.domain.spec import Limits, Segment
from reforward.engine.handle import LmHandle


def pss(pid: int) -> dict[str, float]:
    """PSS of one process in MB: all of it, and the part that lies in shared memory files (weights and outbox)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    fields = {line.split(":")[0]: int(line.split()[1]) / 1e3 for line in lines}
    return {"all": fields["Pss"], "shared files": fields["Pss_Shmem"]}


def read_everything(worker: LmHandle) -> None:
    """One prefill touches every weight."""
    worker.step(list(range(1000, 1016)), [Segment(slot=0, start=0, length=16)], [15], 0)


def main() -> None:
    """Start workers one by one, each reading all weights, and add up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    figures: dict[str, float] = {}
    rows: list[list[str]] = []
    with open_engine("smollm2", 1) as (engine, loaded):
        assert engine.spec is not None
        prepared = engine.prepare(loaded.stock)
        weights = sum(tensor.nbytes for tensor in loaded.source.tensors)
        card.ceiling(f"weights {weights / 1e6:.0f} MB once, whatever the number of workers")
        limits = Limits(slots=1, length=32, tokens=16, rows=1)
        workers: list[LmHandle] = []
        try:
            for count in range(1, args.workers + 1):
                workers.append(engine.start_lm(prepared, depth=engine.spec.layers, limits=limits))
                read_everything(workers[-1])
                found = [pss(worker.process.pid) for worker in workers]
                whole, shared = (sum(part[name] for part in found) for name in ("all", "shared files"))
                rows.append([str(count), f"{shared:.0f}", f"{whole - shared:.0f}", f"{(whole - shared) / count:.0f}"])
                figures |= {f"pss_shared_mb_{count}": round(shared), f"pss_private_mb_{count}": round(whole - shared)}
        finally:
            for worker in workers:
                worker.close()
    figures["controller_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
    card.table("PSS over all workers, MB", ["workers", "weights and outboxes", "private", "private each"], rows)
    card.console.print(f"controller, peak resident: {figures['controller_mb']:.0f} MB")
    card.finish("memory", figures)


if __name__ == "__main__":
    main()
