"""What a micro-benchmark of a machine says: a description that layouts can be planned on, and factors for a known GPU."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reforward.domain.errors import BadInput
from reforward.plan.gpu import Gpu
from reforward.plan.operators import COMPUTE, MEMORY, Operators
from reforward.plan.routing import Routing

SLOWEST = 20e-6
"""Seconds below which an operator's time is mostly its launch: it is shown, and decides no factor."""
TERMS = {
    "gemm": ("projections", "mlp", "head"),
    "experts": ("experts",),
    "prefill": ("prefill attention",),
    "decode": ("decode attention",),
    "all_reduce": ("all-reduce",),
    "all_to_all": ("all-to-all",),
}
"""Terms of a step that are made of a family of operators."""
LINK = 32e9
"""Bytes a second and direction that are assumed where there is one device: PCIe 4 with 16 lanes."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One operator of one shape. Seconds; bytes that must move; operations."""

    family: str
    sizes: Mapping[str, float]
    dtype: str
    seconds: float
    flops: float
    moved: float


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A machine."""

    device: str
    memory: int
    """Bytes of one device; 0 if it is the host's."""
    count: int
    rows: tuple[Row, ...]

    def best(self, family: str, what: str) -> float:
        """The most bytes (`moved`) or operations (`flops`) a second of a family; 0 without a row of it."""
        found = [getattr(row, what) / row.seconds for row in self.rows if row.family == family]
        return max(found, default=0.0)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Operators of one kind against the model's own times for them."""

    name: str
    shapes: int
    factor: float
    """Median of measured over predicted, of shapes longer than `SLOWEST`; of all, if none is."""
    off: float
    """Median of what is left when the factor is taken out, as a fraction."""


def compared(probed: Probed, gpu: Gpu, engine: str) -> tuple[Family, ...]:
    """Each family of operators against what the planner would say of this GPU."""
    operators = Operators(gpu, engine)
    found: list[Family] = []
    for family in TERMS:
        rows = [row for row in probed.rows if row.family == family]
        pairs = [(row.seconds, _predicted(operators, row)) for row in rows]
        long = [pair for pair in pairs if pair[0] > SLOWEST] or pairs
        if long:
            ratios = np.array([seconds / predicted for seconds, predicted in long])
            factor = float(np.median(ratios))
            off = float(np.median(np.abs(ratios / factor - 1)))
            found.append(Family(name=family, shapes=len(long), factor=factor, off=off))
    return tuple(found)


def factors(families: Sequence[Family]) -> dict[str, float]:
    """By term of a step."""
    return {term: family.factor for family in families for term in TERMS[family.name]}


def _predicted(operators: Operators, row: Row) -> float:
    sizes = row.sizes
    whole = {name: int(value) for name, value in sizes.items() if name != "skew"}
    match row.family:
        case "gemm":
            found = operators.gemm("bf16", np.array(sizes["m"]), sizes["n"], sizes["k"])
        case "prefill":
            found = operators.attention_prefill(
                np.array(sizes["batch"]),
                np.array(sizes["length"]),
                whole["heads"],
                whole["kv_heads"],
                whole["dim"],
                "bf16",
                0,
            )
        case "decode":
            found = operators.attention_decode(
                np.array(sizes["batch"]),
                np.array(sizes["context"]),
                whole["heads"],
                whole["kv_heads"],
                whole["dim"],
                "bf16",
                0,
            )
        case "experts":
            routing = Routing.zipf(whole["experts"], sizes["skew"])
            tokens = np.array(sizes["tokens"])
            found = operators.experts("bf16", tokens, whole["hidden"], whole["width"], routing, whole["top_k"], 1, 1)
        case "all_reduce":
            found = operators.all_reduce(whole["ranks"], np.array(sizes["bytes"] / 2))
        case _:
            found = operators.exchange(whole["ranks"], np.array(sizes["bytes"] / 2))
    return float(np.asarray(found).reshape(-1)[0])


def described(probed: Probed, memory: int) -> str:
    """The machine as a file for --gpu-spec: peaks such that the planner's usual shares of them give what was measured."""
    read, flops = probed.best("read", "moved"), probed.best("gemm", "flops")
    if read <= 0 or flops <= 0:
        raise BadInput(f"{probed.device} gave no times of reads or products, so there is nothing to describe it by")
    link = max(probed.best("all_to_all", "moved") / 2, probed.best("all_gather", "moved") / 2) or LINK
    return "\n".join(_lines(probed, memory, read / MEMORY, flops / COMPUTE, link)) + "\n"


def _lines(probed: Probed, memory: int, bandwidth: float, flops: float, link: float) -> Iterator[str]:
    yield "# Measured by `reforward plan probe`; bandwidth and flops are what was reached, over the shares of a peak that"
    yield f"# large kernels are planned with ({MEMORY:g} and {COMPUTE:g})."
    yield "[here]"
    yield f'title = "{probed.device}"'
    yield 'vendor = "measured"'
    yield f"memory = {memory}"
    yield f"bandwidth = {bandwidth:.4g}"
    yield f"flops = {{ bf16 = {flops:.4g} }}"
    yield f"link = {link:.4g}{'' if probed.count > 1 else '  # assumed: there is one device'}"
    yield f"scale_out = {link / 4:.4g}  # assumed"
    yield f"scale_up = {probed.count}"
    yield f"node = {probed.count}"
    yield f'topology = "{"switch" if link > 1e11 else "pcie"}"'
