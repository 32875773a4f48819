"""Which classes of weights a checkpoint really quantises, from its quantization_config."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from reforward.domain.errors import BadInput
from reforward.plan.dtypes import Dtypes

SAMPLES = {
    "attention": "model.layers.9.self_attn.o_proj",
    "mlp": "model.layers.0.mlp.gate_proj",
    "shared": "model.layers.9.mlp.shared_experts.gate_proj",
    "experts": "model.layers.9.mlp.experts.0.gate_proj",
}
"""One module of each class, to try a checkpoint's exclusions on."""
METHODS = {"mxfp4": "mxfp4", "nvfp4": "nvfp4", "fp8_pb_wo": "fp8_block", "awq": "int4", "gptq": "int4", "int8": "int8"}


def dtypes_of(config: Mapping[str, Any]) -> Dtypes:
    """The number formats of a parsed config, nested text config already merged. Raises `BadInput` on an unknown method."""
    quantised: Mapping[str, Any] = config.get("quantization_config") or {}
    default = "fp32" if str(config.get("dtype", config.get("torch_dtype", ""))).endswith("float32") else "bf16"
    if not quantised:
        return Dtypes(attention=default, mlp=default, shared=default, experts=default, head=default)
    base = _format(quantised)
    excluded = _excluded(quantised)
    found = {part: "bf16" if _matches(module, excluded) else base for part, module in SAMPLES.items()}
    if config.get("expert_dtype") == "fp4":
        found["experts"] = "mxfp4"
    return Dtypes(**found, kv=_cache(quantised))


def _format(quantised: Mapping[str, Any]) -> str:
    method = str(quantised.get("quant_algo") or quantised.get("quant_method", "")).lower()
    if method == "fp8":
        return "fp8_block" if quantised.get("weight_block_size") else "fp8"
    if method in ("compressed-tensors", "modelopt", "mixed_precision"):
        groups: Mapping[str, Mapping[str, Any]] = quantised.get("config_groups") or {}
        held = (cast("Mapping[str, Any]", group["weights"]) for group in groups.values() if group.get("weights"))
        nothing: Mapping[str, Any] = {}
        weights = next(held, nothing)
        return _grouped(weights, str(quantised.get("format", "")))
    if method not in METHODS:
        raise BadInput(
            f"quantisation method {method!r} is not known; known: fp8, compressed-tensors, {', '.join(METHODS)}"
        )
    return METHODS[method]


def _grouped(weights: Mapping[str, Any], packing: str) -> str:
    bits, kind = int(weights.get("num_bits", 0)), weights.get("type")
    if bits == 4 and kind == "int":
        return "int4"
    if bits == 4:
        return "mxfp4" if "mxfp4" in packing or weights.get("group_size") == 32 else "nvfp4"
    if bits == 8:
        return "int8" if kind == "int" else "fp8"
    raise BadInput(f"quantisation to {bits} bits of type {kind!r} is not known; known: 4 and 8 bits, int and float")


def _excluded(quantised: Mapping[str, Any]) -> list[str]:
    names = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
    listed: list[list[Any]] = [quantised.get(name) or [] for name in names]
    return [str(one) for found in listed for one in found]


def _matches(module: str, patterns: Sequence[str]) -> bool:
    return any(_match(module, pattern) for pattern in patterns)


def _match(module: str, pattern: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    if "*" in pattern:
        return fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*")
    return module == pattern or module.startswith(f"{pattern}.") or pattern in module.split(".")


def _cache(quantised: Mapping[str, Any]) -> str:
    scheme: Any = quantised.get("kv_cache_quant_algo") or quantised.get("kv_cache_scheme")
    return "fp8" if scheme == "FP8" or (isinstance(scheme, dict) and scheme["num_bits"] == 8) else "bf16"
