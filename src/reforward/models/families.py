"""Which checkpoints are known: from a Hugging Face `config.json` to a `ModelSpec` and its stock forward. No torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import BadInput
from reforward.domain.spec import Family, ModelSpec, RopeScaling

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""Hugging Face architecture name to family."""


def spec_from_config(config: Mapping[str, Any]) -> ModelSpec:
    """The architecture that `config.json` describes; `BadInput` names what is missing or not supported."""
    family = _family(config)
    heads = int(_need(config, "num_attention_heads"))
    hidden = int(_need(config, "hidden_size"))
    _refuse(config, family)
    return ModelSpec(
        family=family,
        layers=int(_need(config, "num_hidden_layers")),
        hidden=hidden,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        intermediate=int(_need(config, "intermediate_size")),
        vocab=int(_need(config, "vocab_size")),
        rms_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=float(_rope(config).get("rope_theta") or config.get("rope_theta") or 10000.0),
        rope_scaling=_scaling(_rope(config)),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        tied=bool(config.get("tie_word_embeddings", False)),
        sliding_window=_window(config, family),
        max_positions=int(config.get("max_position_embeddings", 2048)),
    )


def stock_candidate(family: Family) -> Candidate:
    """The stock forward of a family as a candidate; every family known today shares one file."""
    assert family in FAMILIES.values()
    text = (Path(__file__).parent / "llama.py").read_text(encoding="utf-8")
    return Candidate(host="lm", entry="forward.py:Forward", files=(SourceFile(path="forward.py", text=text),))


def _family(config: Mapping[str, Any]) -> Family:
    names = config.get("architectures") or ["none"]
    if names[0] not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise BadInput(f"architecture {names[0]!r} is not known; known are {known}. Other models: write a subject.py")
    return FAMILIES[names[0]]


def _need(config: Mapping[str, Any], key: str) -> Any:
    if config.get(key) is None:
        raise BadInput(f"config.json has no {key!r}; is this a complete checkpoint?")
    return config[key]


def _refuse(config: Mapping[str, Any], family: Family) -> None:
    """Features that the stock forward does not have must not be ignored."""
    wrong = {
        "attention_bias": family != "qwen2" and bool(config.get("attention_bias")),
        "mlp_bias": bool(config.get("mlp_bias")),
        "quantization_config": config.get("quantization_config") is not None,
        "partial_rotary_factor": config.get("partial_rotary_factor", 1.0) != 1.0,
        "hidden_act": config.get("hidden_act", "silu") != "silu",
    }
    for key, bad in wrong.items():
        if bad:
            raise BadInput(f"config.json sets {key}={config[key]!r}, which the stock {family} forward does not support")


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`rope_parameters` (transformers 5) or `rope_scaling` (before)."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _scaling(rope: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=float(_need(rope, "factor")))
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=float(_need(rope, "factor")),
            low_freq_factor=float(_need(rope, "low_freq_factor")),
            high_freq_factor=float(_need(rope, "high_freq_factor")),
            original_max_positions=int(_need(rope, "original_max_position_embeddings")),
        )
    raise BadInput(f"rope type {kind!r} is not supported; known are default, linear and llama3")


def _window(config: Mapping[str, Any], family: Family) -> int | None:
    """Mistral slides whenever the config gives a window; Qwen only if `use_sliding_window` says so, in some layers."""
    window = config.get("sliding_window")
    if family == "mistral":
        return window
    if window is not None and config.get("use_sliding_window"):
        raise BadInput("config.json sets use_sliding_window, which differs by layer in Qwen and is not supported")
    return None
