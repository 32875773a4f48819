"""The micro-benchmark, for real on this processor with a small grid, and what the planner makes of its rows."""

from pathlib import Path

import pytest

from reforward.engine.microbench import Bench, deal
from reforward.plan.gpu import Gpu
from reforward.plan.probe import Probed, Row, compared, described, factors

TINY = {
    "rows": (1, 32), "matrices": ((256, 256),), "lengths": (64,), "heads": (4, 2, 32), "batches": (1,), "contexts": (64,),
    "experts": (8, 2, 64, 64), "tokens": (4,), "reads": (1 << 20,),
}  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    bench = Bench("cpu")
    bench.grid = TINY
    return tuple(Row(**vars(row)) for row in bench.all())


def test_every_operator_is_timed(rows: tuple[Row, ...]) -> None:
    assert {row.family for row in rows} == {"launch", "read", "gemm", "prefill", "decode", "experts"}
    assert all(row.seconds > 0 for row in rows)
    assert {row.sizes["skew"] for row in rows if row.family == "experts"} == {0.0, 1.01, 1.2}
    balanced, skewed = (next(row for row in rows if row.sizes.get("skew") == skew) for skew in (0.0, 1.2))
    assert balanced.moved > skewed.moved, "skewed routing touches fewer experts"


def test_routing_is_dealt_out_whole() -> None:
    for skew in (0.0, 1.01, 1.2):
        shares = deal(1000, 16, skew)
        assert sum(shares) == 1000
        assert min(shares) >= 0
        assert shares[0] >= max(shares) - 1


def test_a_probed_machine_can_be_planned_on(rows: tuple[Row, ...], tmp_path: Path) -> None:
    probed = Probed(device="a processor", memory=0, count=1, rows=rows)
    path = tmp_path / "here.toml"
    path.write_text(described(probed, 8 << 30))
    gpu = Gpu.read_file(path)
    assert (gpu.memory, gpu.scale_up, gpu.topology) == (8 << 30, 1, "pcie")
    assert gpu.bandwidth * 0.8 == pytest.approx(probed.best("read", "moved"), rel=1e-3)


def test_a_gpu_that_is_slower_than_planned_gets_the_factor() -> None:
    gpu = Gpu.read("h200")
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    one = Row(family="gemm", sizes=sizes, dtype="bf16", seconds=1.0, flops=0, moved=0)
    (family,) = compared(Probed(device="h200", memory=0, count=1, rows=(one,)), gpu, "vllm")
    planned = 1.0 / family.factor
    twice = Row(family="gemm", sizes=sizes, dtype="bf16", seconds=2 * planned, flops=0, moved=0)
    found = compared(Probed(device="h200", memory=0, count=1, rows=(twice,)), gpu, "vllm")
    assert factors(found) == {term: pytest.approx(2.0) for term in ("projections", "mlp", "head")}
