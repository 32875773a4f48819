"""Memory: an engine's own log, what does not fit, and what binds."""

from dataclasses import replace

import pytest

from reforward.plan.engine import Engine, Limits
from reforward.plan.gpu import Gpu
from reforward.plan.layout import Layout
from reforward.plan.memory import fits, weights_per_rank
from reforward.plan.model import Model

VLLM = Engine(name="vllm")


def test_blocks_of_the_cache_are_those_that_an_engine_logged() -> None:
    """vLLM 0.19.0 on an RTX 4090 (25,250,627,584 bytes), Llama-3.1-8B: 2,588 blocks of 16 tokens (LLMServingSim, MIT)."""
    gpu = replace(Gpu.read("l40s"), memory=25_250_627_584)
    limits = Limits(max_num_seqs=256, max_num_batched_tokens=2048, max_model_len=32768)
    assert fits(Model.read("Meta-Llama-3.1-8B"), gpu, Layout(), VLLM, limits).kv_blocks == pytest.approx(2588, rel=0.03)


def test_ranks_share_the_weights() -> None:
    model = Model.read("Qwen3-235B-A22B-FP8")
    assert weights_per_rank(model, Layout()) == pytest.approx(model.weight_bytes(), rel=0.001)
    shared = weights_per_rank(model, Layout(tp=8))
    assert model.weight_bytes() / 8 < shared < model.weight_bytes() / 8 * 1.02
    spread = weights_per_rank(model, Layout(tp=1, dp=8, moe_ep=8))
    assert spread > shared * 1.2, "attention replicas each hold all of the attention"


def test_what_does_not_fit_says_so() -> None:
    memory = fits(Model.read("DeepSeek-V3"), Gpu.read("h200"), Layout(tp=2), VLLM, Limits())
    assert memory.kv_budget < 0
    assert (memory.kv_blocks, memory.fits(1), memory.binding(1000)) == (0, False, "weights")
    assert fits(Model.read("DeepSeek-V3"), Gpu.read("h200"), Layout(tp=8), VLLM, Limits(max_model_len=8192)).fits(8192)


def test_recurrent_states_bind_before_caches() -> None:
    memory = fits(Model.read("Kimi-K3"), Gpu.read("gb300"), Layout(tp=8), VLLM, Limits(max_model_len=8192))
    assert memory.fits(4096)
    assert memory.binding(500) == "state"
    assert memory.binding(500_000) == "kv cache"
    assert memory.headroom(500, memory.sequences(500) + 1) < 0 <= memory.headroom(500, memory.sequences(500))


def test_staging_takes_room() -> None:
    model, gpu = Model.read("Qwen3-32B"), Gpu.read("h200")
    plain = fits(model, gpu, Layout(), VLLM, Limits(max_model_len=4096))
    staged = fits(model, gpu, Layout(), VLLM, Limits(max_model_len=4096, staging_seqs=16))
    assert (plain.kv_blocks - staged.kv_blocks) * 16 == pytest.approx(16 * 4096, abs=32)
