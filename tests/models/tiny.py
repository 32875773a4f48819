"""Tiny random models of every family, made by `transformers`: its own forward is what ours is compared with."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from reforward.domain.spec import Limits, ModelSpec, Segment
from reforward.models.families import spec_from_config
from reforward.models.llama import Forward
from reforward.runtime.lm import LmHost

LIMITS = Limits(slots=3, length=64, tokens=64, rows=64, steps=4)
SIZES = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "vocab_size": 131, "max_position_embeddings": 256, "attention_dropout": 0.0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("Llama", {"num_key_value_heads": 6, "tie_word_embeddings": False}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "head_dim": 16}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}),
    "mistral": ("Mistral", {"sliding_window": 7, "head_dim": 8}),
    "mistral-full": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 20, "tie_word_embeddings": False}),
}
"""Name to transformers' family and what differs from `SIZES`."""


@cache
def reference(variant: str) -> Any:
    """A `transformers` model with random weights of which none is at its trivial value."""
    family, changes = VARIANTS[variant]
    config = getattr(transformers, f"{family}Config")(**SIZES | changes)
    config.architectures = [f"{family}ForCausalLM"]
    config._attn_implementation = "eager"
    torch.manual_seed(11)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.2 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
            parameter.normal_(1.0 if name.endswith("norm.weight") else 0.0, spread)
    return model


def config(variant: str) -> dict[str, Any]:
    """What `save_pretrained` would write as `config.json`."""
    return json.loads(reference(variant).config.to_json_string(use_diff=False))


def spec(variant: str) -> ModelSpec:
    """Ours, read from that."""
    return spec_from_config(config(variant))


def weights(variant: str) -> dict[str, Tensor]:
    """By checkpoint name; a tied head is not stored."""
    state = {name: tensor.detach() for name, tensor in reference(variant).state_dict().items()}
    if spec(variant).tied:
        del state["lm_head.weight"]
    return state


def host(variant: str, dtype: torch.dtype = torch.float32, *, oracle: bool = False) -> LmHost:
    """The stock forward on these weights."""
    own = {name: tensor.to(dtype) for name, tensor in weights(variant).items()}
    return LmHost(
        Forward, spec=spec(variant), weights=own, packed={}, limits=LIMITS, artifacts=Path(), dtype=dtype, oracle=oracle
    )


def text(seed: int, count: int) -> list[int]:
    """Token ids."""
    drawn = torch.randint(0, SIZES["vocab_size"], (count,), generator=torch.Generator().manual_seed(seed))
    return [int(token) for token in drawn]


def step(host: LmHost, tokens: Sequence[int], segments: Sequence[tuple[int, int, int]], rows: Sequence[int]) -> Tensor:
    """Logits of one call; segments are (slot, start, length)."""
    logits = torch.full((len(rows), host.spec.vocab), float("nan"))
    host.step(
        tokens, [Segment(slot=slot, start=start, length=length) for slot, start, length in segments], rows, logits
    )
    return logits


def whole(host: LmHost, tokens: Sequence[int], slot: int = 0) -> Tensor:
    """Logits of every position, in one call."""
    return step(host, tokens, [(slot, 0, len(tokens))], range(len(tokens)))
