"""From `config.json` to a spec: every family is read, and nothing unsupported is passed over."""

from dataclasses import replace
from typing import Any

import pytest

from models import tiny
from reforward.domain.errors import BadInput
from reforward.domain.spec import RopeScaling
from reforward.models.families import FAMILIES, spec_from_config, stock_candidate

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def test_a_small_config_gets_the_defaults_of_its_family() -> None:
    spec = spec_from_config(LLAMA)
    assert (spec.kv_heads, spec.head_dim, spec.rope_theta, spec.rms_eps) == (4, 16, 10000.0, 1e-6)
    assert (spec.tied, spec.qkv_bias, spec.qk_norm, spec.rope_scaling, spec.sliding_window) == (False,) * 3 + (
        None,
    ) * 2


def test_rope_scaling_reads_old_and_new_keys() -> None:
    numbers = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    new = spec_from_config(LLAMA | {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **numbers}})
    old = spec_from_config(LLAMA | {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **numbers}})
    assert new == old
    assert new.rope_scaling == RopeScaling(kind="llama3", factor=8.0, original_max_positions=64)
    assert new.rope_theta == 5e5


def test_families_differ_in_what_they_have() -> None:
    specs = {variant: tiny.spec(variant) for variant in tiny.VARIANTS}
    assert {name for name, spec in specs.items() if spec.qkv_bias} == {"qwen2"}
    assert {name for name, spec in specs.items() if spec.qk_norm} == {"qwen3"}
    assert {name: spec.sliding_window for name, spec in specs.items() if spec.sliding_window} == {"mistral": 7}
    assert {name for name, spec in specs.items() if spec.tied} == {"llama3", "qwen2"}


def test_qwen_slides_only_when_told_to() -> None:
    qwen = LLAMA | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 32}
    assert spec_from_config(qwen | {"use_sliding_window": False}).sliding_window is None
    with pytest.raises(BadInput, match="use_sliding_window"):
        spec_from_config(qwen | {"use_sliding_window": True})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"architectures": ["MambaForCausalLM"]},
            "'MambaForCausalLM' is not known; known are LlamaForCausalLM, Mistral",
        ),
        ({"architectures": None}, "not known"),
        ({"architectures": {"a": 1}}, "not known"),
        ({"architectures": [["x"]]}, "not known"),
        ({"hidden_size": None}, "no 'hidden_size'"),
        ({"hidden_size": "abc"}, "hidden_size='abc'"),
        ({"hidden_size": [64]}, "hidden_size="),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ({"num_hidden_layers": 10**9}, "from 1 to 10,000"),
        ({"num_hidden_layers": float("inf")}, "num_hidden_layers=inf"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True"),
        ({"num_attention_heads": 0}, "num_attention_heads=0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps=nan"),
        ({"rope_theta": "abc"}, "rope_theta='abc'"),
        ({"rope_scaling": "linear"}, "mapping"),
        ({"rope_parameters": [1]}, "mapping"),
        ({"max_position_embeddings": 0}, "max_position_embeddings=0"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": "x"}, "sliding_window='x'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope type 'yarn'"),
        ({"rope_scaling": {"type": "linear"}}, "no 'factor'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_what_is_not_supported_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        spec_from_config(LLAMA | change)


def test_the_stock_candidate_is_the_readable_file() -> None:
    stocks = {stock_candidate(family) for family in FAMILIES.values()}
    assert len(stocks) == 1
    stock = stocks.pop()
    text = stock.text_of("forward.py")
    assert stock.entry == "forward.py:Forward"
    assert text is not None
    assert "class Forward:" in text
    assert len(text.splitlines()) < 200
    assert replace(stock, entry="forward.py:linear").id != stock.id
