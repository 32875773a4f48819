"""Collectives between two GPUs of one host, timed: what tensor and expert parallelism wait for. Started by `microbench`."""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reforward.engine.microbench import Timed

SIZES = tuple(1 << power for power in range(10, 30, 3))
"""Bytes of a message on each rank."""
CALLS, TRIES, RANKS = 10, 5, 2


def timed_pairs() -> list[Timed]:
    """All-reduce, all-gather and all-to-all of 16-bit values, from 1 KiB to 128 MiB."""
    import torch.multiprocessing as processes

    queue: Any = processes.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(_rank, args=(Path(folder) / "meet", queue), nprocs=RANKS, join=True)  # pyright: ignore[reportUnknownMemberType, reportPrivateImportUsage]
    return queue.get()


def _rank(rank: int, meet: Path, queue: Any) -> None:
    import torch
    import torch.distributed as distributed

    group: Any = distributed
    torch.cuda.set_device(rank)
    group.init_process_group("nccl", init_method=f"file://{meet}", rank=rank, world_size=RANKS)
    rows = [row for nbytes in SIZES for row in _at(torch, group, nbytes)]
    if rank == 0:
        queue.put(rows)
    group.barrier()
    group.destroy_process_group()


def _at(torch: Any, group: Any, nbytes: int) -> list[Timed]:
    ours = torch.zeros(nbytes // 2, device="cuda", dtype=torch.bfloat16)
    other, wide = torch.empty_like(ours), torch.empty(nbytes // 2 * RANKS, device="cuda", dtype=torch.bfloat16)
    kinds: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: group.all_reduce(ours),
        "all_gather": lambda: group.all_gather_into_tensor(wide, ours),
        "all_to_all": lambda: group.all_to_all_single(other, ours),
    }
    sizes: dict[str, float] = {"ranks": RANKS, "bytes": nbytes}
    return [
        Timed(family=name, sizes=sizes, dtype="bf16", seconds=_seconds(torch, call), moved=nbytes)
        for name, call in kinds.items()
    ]


def _seconds(torch: Any, call: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(TRIES + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / CALLS)
    return statistics.median(times[1:])
