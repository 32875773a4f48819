"""Which rows each thread block of the decode kernel owns in each layer: contiguous shares, balanced in bytes."""

from dataclasses import astuple, dataclass

from reforward.runtime.forward import ModelSpec

BYTES = 2  # of a bf16 weight
TILE = 8  # rows that are packed together


@dataclass(frozen=True, kw_only=True)
class Share:
    """First packed row and count of rows of one block in one layer; the order is that of `Share` in persistent.cu.

    `x` rows are those of the attention output and of the down projection alike, so that a block keeps its part of the
    residual stream, and are the same in all layers; `inner` rows are packed gate/up rows; `head` counts once a token.
    """

    qkv: int
    qkv_rows: int
    x: int
    x_rows: int
    inner: int
    inner_rows: int
    head: int
    head_rows: int


def even(units: int, blocks: int) -> list[int]:
    """Counts that differ by at most one, the larger ones spread out."""
    return [(b + 1) * units // blocks - b * units // blocks for b in range(blocks)]


def level(load: list[int], units: int) -> list[int]:
    """Counts that differ by at most one, the larger ones for the blocks with the least load so far."""
    counts = [units // len(load)] * len(load)
    for b in sorted(range(len(load)), key=lambda b: load[b])[: units % len(load)]:
        counts[b] += 1
    return counts


def starts(counts: list[int]) -> list[int]:
    """Sums of all counts before each."""
    return [sum(counts[:b]) for b in range(len(counts))]


def schedule(spec: ModelSpec, blocks: int) -> tuple[tuple[Share, ...], ...]:
    """Shares by layer and block. All blocks exchange after each phase, so each phase is level within one tile; a block
    that got less of the layers before gets more gate/up rows of the next, and what is left goes into the head's rows."""
    tile = TILE * spec.hidden * BYTES
    qkv = even((spec.heads + 2 * spec.kv_heads) * spec.head_dim // TILE, blocks)
    x = even(spec.hidden // TILE, blocks)[::-1]
    fixed = [q * tile + r * TILE * (spec.hidden + spec.intermediate) * BYTES for q, r in zip(qkv, x, strict=True)]
    load = [0] * blocks
    inner: list[list[int]] = []
    for _ in range(spec.layers):
        load = [held + more for held, more in zip(load, fixed, strict=True)]
        inner.append(level(load, 2 * spec.intermediate // TILE))
        load = [held + count * tile for held, count in zip(load, inner[-1], strict=True)]
    head = level(load, spec.vocab // TILE)
    return tuple(_layer_shares(qkv, x, own, head) for own in inner)


def _layer_shares(qkv: list[int], x: list[int], inner: list[int], head: list[int]) -> tuple[Share, ...]:
    columns = [[TILE * n for n in row] for counts in (qkv, x, inner, head) for row in (starts(counts), counts)]
    names = ("qkv", "qkv_rows", "x", "x_rows", "inner", "inner_rows", "head", "head_rows")
    return tuple(Share(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True))


def table(shares: tuple[tuple[Share, ...], ...]) -> list[list[tuple[int, ...]]]:
    """[layers][blocks][8] integers, as the kernel reads it."""
    return [[astuple(share) for share in layer] for layer in shares]
