"""Operators of a forward pass, timed one by one on the device at hand, in a process of its own.

python -m reforward.engine.microbench DEVICE THREADS      prints one JSON document

Weights and caches are rotated through more copies than the last cache holds, since a step of a whole model finds none of
its weights there. Times are medians; on a GPU from events around a captured graph of several calls, so that the host's own
time is not in them. What the host adds to a step is a family of its own (`launch`, `graph`).
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

ROTATED = {"cpu": 128 << 20, "cuda": 256 << 20}
"""Bytes of weights that calls go round."""
CALLS, TRIES = 8, 7
SKEWS = (0.0, 1.01, 1.2)
"""Zipf exponents of the routing of tokens to experts."""
GRIDS: dict[str, dict[str, Any]] = {
    "cpu": {
        "rows": (1, 8, 64, 256), "matrices": ((1024, 1024), (4096, 1024)), "lengths": (128, 512), "heads": (8, 2, 64),
        "batches": (1, 8), "contexts": (256, 2048), "experts": (16, 2, 256, 512), "tokens": (4, 64), "reads": (64 << 20,),
    },
    "cuda": {
        "rows": (1, 8, 32, 128, 512, 2048, 8192), "matrices": ((4096, 4096), (28672, 4096), (4096, 14336), (1024, 8192)),
        "lengths": (256, 1024, 4096, 16384), "heads": (32, 8, 128), "batches": (1, 16, 64, 256), "contexts": (512, 4096, 32768),
        "experts": (128, 8, 2048, 768), "tokens": (8, 64, 512, 4096), "reads": (1 << 30,),
    },
}  # fmt: skip
MOST_CACHE = 24 << 30
"""Bytes of a cache that decode attention is timed on."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One operator of one shape. Seconds; the bytes that must move and the operations that must be done."""

    family: str
    sizes: Mapping[str, float]
    dtype: str
    seconds: float
    flops: float = 0.0
    moved: float = 0.0


class Bench:
    """The operators on one device."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch: Any = torch
        self.kind = "cuda" if device.startswith("cuda") else "cpu"
        self.device = device
        self.dtype: Any = torch.bfloat16 if self.kind == "cuda" else torch.float32
        self.name = "bf16" if self.kind == "cuda" else "fp32"
        self.size = 2 if self.kind == "cuda" else 4
        self.grid = GRIDS[self.kind]

    def all(self) -> Iterator[Timed]:
        """Every operator of the grid, smallest family first."""
        yield from self.overheads()
        yield from self.reads()
        yield from self.products()
        yield from self.prefill()
        yield from self.decode()
        yield from self.experts()

    def random(self, *shape: int) -> Any:
        """Values of a normal distribution on the device."""
        return self.torch.randn(*shape, device=self.device, dtype=self.dtype)

    def copies(self, nbytes: float) -> int:
        """How many of such an operand no cache holds together."""
        return int(min(max(ROTATED[self.kind] // max(nbytes, 1), 1), 64)) + 1

    def seconds(self, calls: list[Callable[[], object]]) -> float:
        """Median seconds of one call; the calls are made in turn."""
        turns = max(CALLS, len(calls))
        run = (
            self._graph(calls, turns)
            if self.kind == "cuda"
            else lambda: [calls[i % len(calls)]() for i in range(turns)]
        )
        run()
        return statistics.median(self._once(run) for _ in range(TRIES)) / turns

    def _once(self, run: Callable[[], object]) -> float:
        if self.kind == "cpu":
            begin = time.perf_counter()
            run()
            return time.perf_counter() - begin
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def _graph(self, calls: list[Callable[[], object]], turns: int) -> Callable[[], object]:
        torch = self.torch
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for call in calls:
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for turn in range(turns):
                calls[turn % len(calls)]()
        return graph.replay

    def overheads(self) -> Iterator[Timed]:
        """The smallest kernel: called from Python, and inside a graph."""
        value = self.random(16)
        begin = time.perf_counter()
        for _ in range(500):
            value.add_(1)
        if self.kind == "cuda":
            self.torch.cuda.synchronize()
        yield Timed(family="launch", sizes={}, dtype=self.name, seconds=(time.perf_counter() - begin) / 500)
        if self.kind == "cuda":
            yield Timed(family="graph", sizes={}, dtype=self.name, seconds=self.seconds([lambda: value.add_(1)]))

    def reads(self) -> Iterator[Timed]:
        """A matrix times a vector: memory is read once, and little is computed."""
        for nbytes in self.grid["reads"]:
            columns = 4096
            matrix, vector = self.random(nbytes // self.size // columns, columns), self.random(columns)
            seconds = self.seconds([lambda m=matrix, v=vector: m @ v])
            yield Timed(family="read", sizes={"bytes": nbytes}, dtype=self.name, seconds=seconds, moved=nbytes)

    def products(self) -> Iterator[Timed]:
        """(m, k) x (k, n), as a linear layer has them."""
        for n, k in self.grid["matrices"]:
            weights = [self.random(n, k) for _ in range(self.copies(n * k * self.size))]
            for m in self.grid["rows"]:
                rows = self.random(m, k)
                calls = [lambda w=weight, x=rows: self.torch.nn.functional.linear(x, w) for weight in weights]
                moved = (n * k + m * (n + k)) * self.size
                sizes = {"m": m, "n": n, "k": k}
                yield Timed(
                    family="gemm",
                    sizes=sizes,
                    dtype=self.name,
                    seconds=self.seconds(calls),
                    flops=2 * m * n * k,
                    moved=moved,
                )

    def prefill(self) -> Iterator[Timed]:
        """Causal attention of one whole prompt."""
        heads, shared, dim = self.grid["heads"]
        for length in self.grid["lengths"]:
            q, k, v = (self.random(1, count, length, dim) for count in (heads, shared, shared))
            sdpa = self.torch.nn.functional.scaled_dot_product_attention
            seconds = self.seconds([lambda q=q, k=k, v=v, sdpa=sdpa: sdpa(q, k, v, is_causal=True, enable_gqa=True)])
            sizes = {"batch": 1, "length": length, "heads": heads, "kv_heads": shared, "dim": dim}
            yield Timed(
                family="prefill", sizes=sizes, dtype=self.name, seconds=seconds, flops=2 * length * length * heads * dim
            )

    def decode(self) -> Iterator[Timed]:
        """One query a sequence against its cache."""
        heads, shared, dim = self.grid["heads"]
        sdpa = self.torch.nn.functional.scaled_dot_product_attention
        for batch in self.grid["batches"]:
            for context in self.grid["contexts"]:
                nbytes = 2 * batch * shared * context * dim * self.size
                copies = self.copies(nbytes)
                if nbytes * copies > MOST_CACHE:
                    continue
                caches = [[self.random(batch, shared, context, dim) for _ in range(2)] for _ in range(copies)]
                q = self.random(batch, heads, 1, dim)
                seconds = self.seconds([lambda q=q, c=cache: sdpa(q, *c, enable_gqa=True) for cache in caches])
                sizes = {"batch": batch, "context": context, "heads": heads, "kv_heads": shared, "dim": dim}
                yield Timed(family="decode", sizes=sizes, dtype=self.name, seconds=seconds, moved=nbytes)

    def experts(self) -> Iterator[Timed]:
        """The two products of gated experts, each over the tokens that it gets, under routings of several skews."""
        count, top_k, hidden, width = self.grid["experts"]
        up, down = self.random(count, 2 * width, hidden), self.random(count, hidden, width)
        for tokens in self.grid["tokens"]:
            for skew in SKEWS:
                shares = deal(tokens * top_k, count, skew)
                rows, gated = self.random(tokens * top_k, hidden), self.random(tokens * top_k, width)
                seconds = self.seconds([self._grouped(rows, up, shares)]) + self.seconds(
                    [self._grouped(gated, down, shares)]
                )
                touched = sum(share > 0 for share in shares)
                sizes = {
                    "tokens": tokens,
                    "experts": count,
                    "top_k": top_k,
                    "hidden": hidden,
                    "width": width,
                    "skew": skew,
                }
                flops, moved = 6 * tokens * top_k * hidden * width, touched * 3 * hidden * width * self.size
                yield Timed(family="experts", sizes=sizes, dtype=self.name, seconds=seconds, flops=flops, moved=moved)

    def _grouped(self, rows: Any, weights: Any, shares: list[int]) -> Callable[[], object]:
        torch = self.torch
        if self.kind == "cuda" and hasattr(torch, "_grouped_mm"):
            ends = torch.tensor(shares, device=self.device).cumsum(0).to(torch.int32)
            turned = weights.transpose(-2, -1)
            return lambda: torch._grouped_mm(rows, turned, offs=ends)
        parts = [(part, weight) for part, weight in zip(rows.split(shares), weights, strict=True) if len(part)]
        return lambda: [torch.nn.functional.linear(part, weight) for part, weight in parts]


def deal(pairs: int, experts: int, skew: float) -> list[int]:
    """Tokens of each expert when the share of the r-th falls with r to the minus `skew`; they add up to `pairs`."""
    weights = [(rank + 1) ** -skew for rank in range(experts)]
    ends = [round(pairs * sum(weights[: rank + 1]) / sum(weights)) for rank in range(experts)]
    return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def main() -> None:
    """Time everything, print."""
    device, threads = sys.argv[1], int(sys.argv[2])
    import torch as real

    torch: Any = real
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    gpu = device.startswith("cuda")
    with torch.inference_mode():
        rows = list(Bench(device).all())
    if gpu and torch.cuda.device_count() > 1:
        from reforward.engine.collectives import timed_pairs

        rows += timed_pairs()
    found: Any = torch.cuda.get_device_properties(0) if gpu else None
    name, memory = (str(found.name), int(found.total_memory)) if found else ("cpu", 0)
    print(json.dumps({"device": name, "memory": memory, "count": torch.cuda.device_count() if gpu else 1,
                      "rows": [asdict(row) for row in rows]}))  # fmt: skip


if __name__ == "__main__":
    main()
