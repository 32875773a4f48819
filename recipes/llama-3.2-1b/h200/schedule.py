"""Which rows each thread block of the persistent kernel owns: contiguous shares, balanced in bytes."""

from dataclasses import astuple, dataclass

from reforward.runtime.forward import ModelSpec

BYTES = 2  # of a bf16 weight


@dataclass(frozen=True, kw_only=True)
class Share:
    """First packed row and count of rows of one block; the order is that of `Share` in persistent.cu.

    `x` rows are those of the attention output and of the down projection alike, so that a block keeps its part of the
    residual stream; `inner` rows are packed gate/up rows.
    """

    qkv: int
    qkv_rows: int
    x: int
    x_rows: int
    inner: int
    inner_rows: int
    head: int
    head_rows: int


# Rows that must stay together: rope pairs; pairs of residual elements and of products that share an exchange word.
UNITS = {"qkv": 2, "x": 2, "inner": 4, "head": 1}


def even(units: int, blocks: int) -> list[int]:
    """Counts that differ by at most one, the larger ones spread out."""
    return [(b + 1) * units // blocks - b * units // blocks for b in range(blocks)]


def level(load: list[float], units: int, cost: float) -> list[int]:
    """Counts that add up to `units` and make load + count * cost as equal as whole units allow."""
    low, high = min(load), max(load) + units * cost
    for _ in range(100):
        middle = (low + high) / 2
        if sum(max(0, int((middle - held) // cost)) for held in load) > units:
            high = middle
        else:
            low = middle
    counts = [max(0, int((low - held) // cost)) for held in load]
    for _ in range(units - sum(counts)):
        least = min(range(len(load)), key=lambda b: load[b] + counts[b] * cost)
        counts[least] += 1
    return counts


def schedule(spec: ModelSpec, blocks: int) -> tuple[Share, ...]:
    """Equal bytes a layer within one unit of gate/up rows, and equal bytes a token within one row of the head."""
    row = spec.hidden * BYTES
    qkv = even((spec.heads + 2 * spec.kv_heads) * spec.head_dim // UNITS["qkv"], blocks)
    x = even(spec.hidden // UNITS["x"], blocks)[::-1]
    layer = [
        q * UNITS["qkv"] * row + r * UNITS["x"] * (row + spec.intermediate * BYTES) for q, r in zip(qkv, x, strict=True)
    ]
    inner = level(layer, 2 * spec.intermediate // UNITS["inner"], UNITS["inner"] * row)
    token = [spec.layers * (held + i * UNITS["inner"] * row) for held, i in zip(layer, inner, strict=True)]
    head = level(token, spec.vocab, row)
    counts = {"qkv": qkv, "x": x, "inner": inner, "head": head}
    starts = dict.fromkeys(counts, 0)
    shares: list[Share] = []
    for b in range(blocks):
        own: dict[str, int] = {}
        for name, unit in UNITS.items():
            own[name], own[f"{name}_rows"] = starts[name], counts[name][b] * unit
            starts[name] += counts[name][b] * unit
        shares.append(Share(**own))
    return tuple(shares)


def table(shares: tuple[Share, ...]) -> list[tuple[int, ...]]:
    """One row of integers a block, as the kernel reads it."""
    return [astuple(share) for share in shares]
