"""Which checkpoints are known: from a Hugging Face `config.json` to a `ModelSpec` and its stock forward. No torch."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

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
MOST_LAYERS = 10_000
MOST = 1 << 30
"""No size of a model that is known comes near these; a config beyond them is damaged."""


def spec_from_config(config: Mapping[str, Any]) -> ModelSpec:
    """The architecture that `config.json` describes; `BadInput` names what is missing, no such number, or not supported."""
    family = _family(config)
    heads = _count(config, "num_attention_heads")
    hidden = _count(config, "hidden_size")
    _refuse(config, family)
    rope = _rope(config)
    return ModelSpec(
        family=family,
        layers=_count(config, "num_hidden_layers", most=MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads", heads),
        head_dim=_count(config, "head_dim", hidden // heads),
        intermediate=_count(config, "intermediate_size"),
        vocab=_count(config, "vocab_size"),
        rms_eps=_real(config, "rms_norm_eps", 1e-6),
        rope_theta=_real(rope, "rope_theta", _real(config, "rope_theta", 10000.0)),
        rope_scaling=_scaling(rope),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        tied=bool(config.get("tie_word_embeddings", False)),
        sliding_window=_window(config, family),
        max_positions=_count(config, "max_position_embeddings", 2048),
    )


def stock_candidate(family: Family) -> Candidate:
    """The stock forward of a family as a candidate; every family known today shares one file."""
    assert family in FAMILIES.values()
    text = (Path(__file__).parent / "llama.py").read_text(encoding="utf-8")
    return Candidate(host="lm", entry="forward.py:Forward", files=(SourceFile(path="forward.py", text=text),))


def _family(config: Mapping[str, Any]) -> Family:
    names: Any = config.get("architectures") or ["none"]
    name = str(cast(list[object], names)[0] if isinstance(names, list) else names)
    if name not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise BadInput(f"architecture {name!r} is not known; known are {known}. Other models: write a subject.py")
    return FAMILIES[name]


def _need(config: Mapping[str, Any], key: str, default: float | None = None) -> Any:
    """The value, or the default where the key is missing or null."""
    found = default if config.get(key) is None else config[key]
    if found is None:
        raise BadInput(f"config.json has no {key!r}; is this a complete checkpoint?")
    return found


def _count(config: Mapping[str, Any], key: str, default: int | None = None, *, most: int = MOST) -> int:
    value = _need(config, key, default)
    if type(value) is not int or not 1 <= value <= most:
        raise BadInput(f"config.json sets {key}={value!r}, which is no whole number from 1 to {most:,}; it is damaged")
    return value


def _real(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = _need(config, key, default)
    if type(value) not in (int, float) or not 0 <= value <= MOST or not math.isfinite(value):
        raise BadInput(f"config.json sets {key}={value!r}, which is no number from 0 to {MOST:,}; it is damaged")
    return float(value)


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
    found: object = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(found, dict):
        raise BadInput(f"config.json describes the rotary embedding as {found!r}; a mapping with a rope_type is needed")
    return cast(dict[str, Any], found)


def _scaling(rope: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=_real(rope, "factor"))
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=_real(rope, "factor"),
            low_freq_factor=_real(rope, "low_freq_factor"),
            high_freq_factor=_real(rope, "high_freq_factor"),
            original_max_positions=_count(rope, "original_max_position_embeddings"),
        )
    raise BadInput(f"rope type {kind!r} is not supported; known are default, linear and llama3")


def _window(config: Mapping[str, Any], family: Family) -> int | None:
    """Mistral slides whenever the config gives a window; Qwen only if `use_sliding_window` says so, in some layers."""
    window = config.get("sliding_window")
    if family == "mistral":
        return None if window is None else _count(config, "sliding_window")
    if window is not None and config.get("use_sliding_window"):
        raise BadInput("config.json sets use_sliding_window, which differs by layer in Qwen and is not supported")
    return None
