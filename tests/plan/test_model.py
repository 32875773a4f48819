"""Models, GPUs and layouts: published sizes come out, and what is wrong or missing is named."""

import json
from pathlib import Path

import pytest

from reforward.domain.errors import BadInput
from reforward.plan.configs import packaged
from reforward.plan.gpu import Gpu
from reforward.plan.layout import Layout
from reforward.plan.model import Model

BILLIONS = {
    "DeepSeek-V3": (671, 37.5),
    "Kimi-K2-Instruct": (1026, 32.5),
    "Meta-Llama-3.1-8B": (8.03, 7.5),
    "Meta-Llama-3.1-405B": (405.9, 404),
    "Qwen3-32B": (32.8, 32),
    "Qwen3-235B-A22B-FP8": (235, 22),
    "Qwen3-30B-A3B": (30.5, 3.1),
    "gpt-oss-120b": (117, 5.1),
    "MiniMax-M2.5": (229, 10.4),
    "GLM-5": (744, 41),
    "DeepSeek-V4-Flash": (284, 13),
    "Qwen3.5-397B-A17B": (397, 16.5),
}
"""Parameters and active parameters, as the publishers give them (drafting layers left out; without the embedding if active)."""


@pytest.mark.parametrize("name", sorted(BILLIONS))
def test_parameters_are_those_published(name: str) -> None:
    model = Model.read(name)
    total, active = BILLIONS[name]
    assert model.parameters() / 1e9 == pytest.approx(total, rel=0.01)
    assert model.parameters(active=True) / 1e9 == pytest.approx(active, rel=0.05)


def test_all_packaged_models_read() -> None:
    assert len(packaged()) >= 24
    for name in packaged():
        assert Model.read(name).layers > 0


def test_caches_and_states() -> None:
    assert Model.read("DeepSeek-V3").kv_bytes_per_token(8) == 70_272, "latent caches are not shared out"
    assert Model.read("Meta-Llama-3.1-8B").kv_bytes_per_token(8) == 131_072 / 8
    assert Model.read("Meta-Llama-3.1-8B").kv_bytes_per_token(16) == 131_072 / 8, "a head is held by two ranks"
    kimi = Model.read("Kimi-K3")
    assert kimi.kv_bytes_per_token() == 27_648
    assert kimi.state_bytes_per_sequence() == pytest.approx(217e6, rel=0.08)
    assert kimi.expert_parameters() * kimi.moe.experts * kimi.moe.layers == pytest.approx(2.72e12, rel=0.005)  # type: ignore[union-attr]


def test_what_is_really_quantised() -> None:
    kimi, oss = Model.read("Kimi-K2.5").dtypes, Model.read("gpt-oss-120b").dtypes
    assert (kimi.experts, kimi.attention, kimi.shared) == ("int4", "bf16", "bf16")
    assert (oss.experts, oss.attention) == ("mxfp4", "bf16")
    fp8 = Model.read("Qwen3-235B-A22B-FP8").dtypes
    assert (fp8.attention, fp8.experts, fp8.head) == ("fp8_block", "fp8_block", "bf16")
    assert Model.read("DeepSeek-V4-Pro").dtypes.experts == "mxfp4"


def _config(tmp_path: Path, **fields: object) -> Path:
    llama = {
        "model_type": "mine", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000,
        "intermediate_size": 2048,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps({name: value for name, value in {**llama, **fields}.items() if value is not None}))
    return path


def test_a_directory_and_an_unknown_type_with_all_fields_read(tmp_path: Path) -> None:
    _config(tmp_path)
    assert Model.read(tmp_path).attention[0].kv_heads == 8


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_size": None, "num_attention_heads": None}, ["'mine'", "hidden_size", "num_attention_heads"]),
        ({"num_attention_heads": 7}, ["512", "7 heads", "head_dim"]),
        ({"num_key_value_heads": 3}, ["8 heads", "3"]),
        ({"n_routed_experts": 8, "num_experts_per_tok": 9, "moe_intermediate_size": 64}, ["9 of 8 experts"]),
        ({"layer_types": ["full_attention"]}, ["1 entries", "4 layers"]),
        ({"hybrid_override_pattern": "M*M*"}, ["not modelled"]),
        ({"quantization_config": {"quant_method": "xyz"}}, ["'xyz'"]),
    ],
)
def test_bad_configs_say_what_and_which(tmp_path: Path, fields: dict[str, object], words: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        Model.read(_config(tmp_path, **fields))
    for word in words:
        assert word in str(caught.value)


def test_names_that_are_not_there_suggest_near_ones() -> None:
    with pytest.raises(BadInput, match="DeepSeek-V3"):
        Model.read("deepseek-v33")
    with pytest.raises(BadInput, match="h200"):
        Gpu.read("h2000")


def test_a_gpu_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "gpu.toml"
    path.write_text(
        '[mine]\ntitle = "M"\nvendor = "x"\nmemory = 1e11\nbandwidth = 1e12\nflops = { bf16 = 1e14 }\nlink = 1e10\n'
        'scale_out = 1e10\nscale_up = 4\nnode = 4\ntopology = "pcie"\n'
    )
    gpu = Gpu.read_file(path)
    assert gpu.flops_of("nvfp4") == 1e14, "what it cannot multiply it widens"
    path.write_text(path.read_text().replace("bandwidth = 1e12\n", ""))
    with pytest.raises(BadInput, match="bandwidth"):
        Gpu.read_file(path)


def test_layouts_read_and_are_checked() -> None:
    layout = Layout.parse("tp4 dp2 ep8")
    assert (layout.gpus, layout.moe_tp, str(layout)) == (8, 1, "tp4 dp2 ep8")
    for text in ("tp4 xx2", "", "tp4 tp2", "tp2 ep3"):
        with pytest.raises(BadInput):
            Layout.parse(text)
    h200, llama, moe = Gpu.read("h200"), Model.read("Meta-Llama-3.1-8B"), Model.read("Qwen3-30B-A3B")
    assert "scale-up domain" in Layout(tp=16).why_not(llama, h200)
    assert "32 heads" in Layout(tp=3).why_not(llama, h200)
    assert "no experts" in Layout(dp=2).why_not(llama, h200)
    assert Layout(tp=2, dp=4, moe_ep=8).why_not(moe, h200) == ""
