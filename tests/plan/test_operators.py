"""Operators and steps: measured shapes come out, skew has the right sign, and without tables a roofline stands in and says so."""

import numpy as np
import pytest

from reforward.domain.errors import BadInput
from reforward.plan import tables
from reforward.plan.closed import Load
from reforward.plan.engine import Engine, Limits
from reforward.plan.estimate import Estimator
from reforward.plan.forward import Forward
from reforward.plan.gpu import Gpu
from reforward.plan.layered import Layered
from reforward.plan.layout import Layout
from reforward.plan.model import Model
from reforward.plan.operators import Operators
from reforward.plan.routing import Routing

needs_tables = pytest.mark.skipif(tables.folder() is None, reason="pip install 'reforward[plan]' brings the tables")
H200 = Gpu.read("h200")


@needs_tables
def test_a_measured_shape_is_what_was_measured() -> None:
    columns = next(tables.rows("h200", "gemm", "gemm", "vllm", "gemm_dtype", "m", "n", "k", "latency"))
    kept = np.flatnonzero((columns["gemm_dtype"] == "bfloat16") & (columns["latency"] > 0.02))[::2000]
    operators = Operators(H200, "vllm")
    for row in kept:
        m, n, k = (float(columns[name][row]) for name in ("m", "n", "k"))
        same = (columns["m"] == m) & (columns["n"] == n) & (columns["k"] == k) & (columns["gemm_dtype"] == "bfloat16")
        fastest = columns["latency"][same].min()
        assert operators.gemm("bf16", np.array([m]), n, k)[0] * 1e3 == pytest.approx(fastest, rel=0.1), (
            "neighbours one token away count alike"
        )


@needs_tables
def test_skew_makes_decode_faster_and_prefill_slower() -> None:
    operators, tokens = Operators(H200, "vllm"), np.array([32.0, 8192.0])
    even, skewed = (
        operators.experts("fp8_block", tokens, 7168, 2048, Routing.zipf(256, skew), 8, 1, 8) for skew in (0.0, 1.2)
    )
    assert skewed[0] < even[0]
    assert skewed[1] > 1.2 * even[1]


def test_routing_from_a_histogram() -> None:
    even = Routing.counted(np.full(64, 10.0))
    assert even.skew == 0
    assert even.touched(np.array([1.0]), 4)[0] == pytest.approx(4)
    assert even.touched(np.array([1e6]), 4)[0] == pytest.approx(64)
    skewed = Routing.counted(1000 / np.arange(1, 65) ** 0.9)
    assert skewed.skew == pytest.approx(0.9, abs=0.01)
    assert skewed.touched(np.array([8.0]), 4)[0] < even.touched(np.array([8.0]), 4)[0]
    assert skewed.busiest(8) > even.busiest(8) == pytest.approx(1)
    for counts in (np.array([]), np.array([1.0, -1.0]), np.zeros(3)):
        with pytest.raises(BadInput):
            Routing.counted(counts)


@pytest.mark.parametrize(
    "name", ["Meta-Llama-3.1-8B", "DeepSeek-V3", "GLM-5.2", "MiniMax-M3", "Kimi-K3", "DeepSeek-V4-Flash"]
)
def test_steps_of_every_kind_of_attention(name: str) -> None:
    """More work takes longer, parts make the whole, and no step beats the memory that it must read."""
    model, layout = Model.read(name), Layout(tp=8)
    steps = Layered(forward=Forward(model=model, layout=layout, operators=Operators(H200, "vllm", measured=False)))
    batch = np.array([1.0, 16.0, 128.0])
    decode = steps.decode_s(batch, 4096.0)
    assert np.all(np.diff(decode) > 0)
    assert np.all(steps.decode_s(batch, 32768.0) >= decode)
    mixed = steps.mixed_s(1024.0, 512.0, batch, 4096.0)
    assert np.all(mixed > decode)
    assert mixed == pytest.approx(sum(steps.terms(1024.0, 512.0, batch, 4096.0).values()))
    active = model.parameters(active=True) / 8 * 0.5
    assert decode[0] > active / H200.bandwidth


def test_sparse_attention_stops_growing_where_it_picks() -> None:
    forward = Forward(
        model=Model.read("DeepSeek-V3.2"), layout=Layout(tp=8), operators=Operators(H200, "vllm", measured=False)
    )
    dense = Forward(model=Model.read("DeepSeek-V3"), layout=Layout(tp=8), operators=forward.operators)
    ones, far = np.array([64.0]), np.array([100_000.0])
    assert forward.decode_attention(ones, far)[0] < 0.5 * dense.decode_attention(ones, far)[0]


def test_estimates_widen_without_tables_and_say_so() -> None:
    model, layout = Model.read("Qwen3-32B"), Layout(tp=2)
    load = Load.of(1024, 256, np.array([1, 16, 64]))
    bare = Estimator(H200, Engine(), Operators(H200, "vllm", measured=False)).estimate(model, layout, Limits(), load)
    assert not bare.measured
    assert np.all(bare.tpot.high / bare.tpot.low > np.exp(0.7))
    assert sum(bare.terms.values()) == pytest.approx(bare.tpot.value)
    if tables.folder() is not None:
        known = Estimator.of(H200, Engine()).estimate(model, layout, Limits(), load)
        assert known.measured
        assert np.all(known.tpot.high / known.tpot.low < bare.tpot.high / bare.tpot.low)
        assert np.all(np.diff(known.rate) > 0)


def test_a_load_without_tokens_is_refused() -> None:
    with pytest.raises(BadInput, match="output must be at least 1"):
        Load.of(100, 0, 4)
