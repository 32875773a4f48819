"""The persistent kernel's schedule: every row of every matrix has one owner, and bytes are level."""

from typing import Any

import pytest

from reforward.domain.spec import ModelSpec

SPEC = ModelSpec(
    family="llama",
    layers=16,
    hidden=2048,
    heads=32,
    kv_heads=8,
    head_dim=64,
    intermediate=8192,
    vocab=128256,
    rms_eps=1e-5,
    rope_theta=500000.0,
    tied=True,
)
ROWS = {"qkv": 3072, "x": 2048, "inner": 16384, "head": 128256}


@pytest.mark.parametrize("blocks", [132, 114, 160])
def test_every_row_has_one_owner_and_shares_are_whole_tiles(recipe: Any, blocks: int) -> None:
    for layer in recipe.load("schedule").schedule(SPEC, blocks):
        assert len(layer) == blocks
        for name, rows in ROWS.items():
            spans = [(getattr(share, name), getattr(share, f"{name}_rows")) for share in layer]
            assert all(first % 8 == 0 and count % 8 == 0 and count > 0 for first, count in spans)
            ends = [first + count for first, count in spans]
            assert [first for first, _ in spans] == [0, *ends[:-1]]
            assert ends[-1] == rows


def test_no_phase_is_more_than_one_tile_out_of_level(recipe: Any) -> None:
    for layer in recipe.load("schedule").schedule(SPEC, 132):
        for name in ROWS:
            counts = [getattr(share, f"{name}_rows") for share in layer]
            assert max(counts) - min(counts) <= 8


def test_residual_rows_and_head_rows_stay_with_their_block(recipe: Any) -> None:
    layers = recipe.load("schedule").schedule(SPEC, 132)
    fixed = [[(share.qkv, share.x, share.x_rows, share.head, share.head_rows) for share in layer] for layer in layers]
    assert all(layer == fixed[0] for layer in fixed)


def test_the_kernel_can_hold_a_share(recipe: Any) -> None:
    """Bounds that persistent.cu relies on: one warp finishes q/k/v rows, 16 residual values a block."""
    for layer in recipe.load("schedule").schedule(SPEC, 132):
        assert max(share.qkv_rows for share in layer) <= 32
        assert max(share.x_rows for share in layer) <= 16
        assert min(share.inner_rows for share in layer) * 4096 > 16 * 16384  # more than the quiet stages


def test_most_blocks_stream_the_same_bytes_a_token(recipe: Any) -> None:
    """Within 1 % of the mean, but for the blocks that own half as many rows of the residual stream."""
    layers = recipe.load("schedule").schedule(SPEC, 132)
    total = [
        sum(s[b].qkv_rows * 4096 + s[b].x_rows * 20480 + s[b].inner_rows * 4096 for s in layers)
        + layers[0][b].head_rows * 4096
        for b in range(132)
    ]
    mean = sum(total) / 132
    assert max(total) < 1.011 * mean
    assert sum(value > 0.99 * mean for value in total) >= 120


def test_level_gives_the_remainder_to_those_with_least(recipe: Any) -> None:
    level = recipe.load("schedule").level
    assert level([5, 0, 9, 1], 6) == [1, 2, 1, 2]
