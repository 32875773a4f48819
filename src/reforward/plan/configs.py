"""A `Model` from a Hugging Face config.json: families differ in the names of fields, not in what is read."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from reforward.domain.errors import BadInput
from reforward.plan.model import Attention, Model, Moe
from reforward.plan.quantised import dtypes_of

PACKAGED = Path(__file__).parent / "models"
NESTED = ("text_config", "language_config", "llm_config")
NOT_MODELLED = ("hybrid_override_pattern", "layers_block_type", "ssm_cfg", "attention_chunk_size", "block_configs")
"""Fields of mechanisms that no class here describes: a plan that ignored them would be wrong."""
EXPERT_WIDTH_IS_INTERMEDIATE = ("minimax_m2", "minimax_m3", "gpt_oss", "mixtral")


def packaged() -> list[str]:
    """Names that `Model.read` knows without a file."""
    return sorted(path.stem for path in PACKAGED.glob("*.json"))


def read_model(source: str | Path) -> Model:
    """A directory with a config.json, the file itself, or a packaged name (owner and letter case may be left out)."""
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        return model_of(_parsed(path), name=_name(path))
    if path.suffix == ".json" or len(path.parts) > 2:
        raise BadInput(
            f"no model configuration at {path}; give a directory with a config.json, the file, or a packaged name"
        )
    wanted = str(source).rsplit("/", 1)[-1].lower()
    names = {name.lower(): name for name in packaged()}
    if wanted not in names:
        close = get_close_matches(wanted, names, n=3) or names
        hint = ", ".join(names[one] for one in close)
        raise BadInput(
            f"no file and no packaged model is called {str(source)!r}; near it: {hint}; or give its config.json"
        )
    return model_of(_parsed(PACKAGED / f"{names[wanted]}.json"), name=names[wanted])


def _name(path: Path) -> str:
    return path.parent.resolve().name if path.name == "config.json" else path.stem


def _parsed(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as JSON: {error}; give a Hugging Face config.json") from error
    if not isinstance(found, dict):
        raise BadInput(f"{path} holds a {type(found).__name__}, not an object; give a Hugging Face config.json")
    known = cast("dict[str, Any]", found)
    beside = path.with_name("hf_quant_config.json")
    if beside.is_file() and "quantization_config" not in known:
        known["quantization_config"] = json.loads(beside.read_text(encoding="utf-8")).get("quantization", {})
    return known


NOTHING: Mapping[str, Any] = {}


class _Fields:
    """A config with the names of all families; remembers what was asked for and not there."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        nested = next((cast("Mapping[str, Any]", config[name]) for name in NESTED if name in config), NOTHING)
        self.all: dict[str, Any] = {**config, **nested}
        self.missing: list[str] = []

    def need(self, *names: str) -> int:
        """The first of these fields; noted as missing and 1 if there is none."""
        for name in names:
            value = self.all.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int):
                    raise BadInput(f"{name} must be a whole number, got {value!r}; mend the config.json")
                return value
        self.missing.append(" or ".join(names))
        return 1

    def get(self, *names: str, default: int = 0) -> int:
        """The first of these fields that is set."""
        return next((int(self.all[name]) for name in names if self.all.get(name) is not None), default)

    def listed(self, name: str, layers: int) -> list[Any] | None:
        """A list with an entry per layer; drafting layers at its end are cut off."""
        listed = self.all.get(name)
        if not isinstance(listed, list):
            return None
        found = cast("list[Any]", listed)
        if len(found) < layers:
            raise BadInput(f"{name} has {len(found)} entries for {layers} layers; mend the config.json")
        return found[:layers]


def model_of(config: Mapping[str, Any], *, name: str) -> Model:
    """The model that a parsed config describes. Raises `BadInput` that names missing or contradictory fields."""
    fields = _Fields(config)
    kind = str(fields.all.get("model_type", "unknown"))
    if unknown := [field for field in NOT_MODELLED if fields.all.get(field)]:
        raise BadInput(f"{name}: model type {kind!r} mixes layers in a way that is not modelled ({', '.join(unknown)})")
    layers, hidden = fields.need("num_hidden_layers", "n_layer"), fields.need("hidden_size", "n_embd")
    vocab = fields.need("vocab_size")
    attention = _attention(fields, layers, hidden)
    moe = _moe(fields, layers, kind)
    dense_layers = layers - (moe.layers if moe else 0)
    dense_width = _dense_width(fields, kind) if dense_layers else 0
    if fields.missing:
        raise BadInput(
            f"{name}: model type {kind!r} does not say {', '.join(fields.missing)}; add these fields to its config.json"
        )
    return Model(
        name=name,
        type=kind,
        hidden=hidden,
        vocab=vocab,
        attention=attention,
        dense_layers=dense_layers,
        dense_width=dense_width,
        moe=moe,
        dtypes=dtypes_of(fields.all),
        max_length=fields.get("max_position_embeddings", "n_positions", default=4096),
        tied=bool(fields.all.get("tie_word_embeddings", False)),
        mtp_layers=fields.get("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
        streams=fields.get("hc_mult", default=1),
    ).check()


def _attention(fields: _Fields, layers: int, hidden: int) -> tuple[Attention, ...]:
    """The kinds of attention layers, in the order of their first layer."""
    if fields.get("kv_lora_rank"):
        kinds = _latent(fields, layers)
    elif "compress_ratios" in fields.all or "compress_rates" in fields.all:
        kinds = _compressed(fields, layers)
    else:
        kinds = _grouped(fields, layers, hidden)
    return tuple(one for one in kinds if one.layers)


def _latent(fields: _Fields, layers: int) -> list[Attention]:
    nope, rope = fields.need("qk_nope_head_dim"), fields.need("qk_rope_head_dim")
    heads, v_dim = fields.need("num_attention_heads"), fields.need("v_head_dim")
    linear = cast("Mapping[str, Any]", fields.all.get("linear_attn_config") or NOTHING)
    full = len(linear["full_attn_layers"]) if linear else layers
    one = Attention(
        layers=full,
        kind="mla",
        heads=heads,
        kv_heads=1,
        qk_dim=nope + rope,
        v_dim=v_dim,
        q_rank=fields.get("q_lora_rank"),
        kv_rank=fields.need("kv_lora_rank"),
        rope_dim=rope,
        topk=fields.get("index_topk"),
        index_heads=fields.get("index_n_heads"),
        index_dim=fields.get("index_head_dim"),
        gate=heads * v_dim if fields.all.get("mla_use_output_gate") else 0,
    )
    if linear:
        count = len(linear["kda_layers"])
        if count + full != layers:
            raise BadInput(
                f"{full} full and {count} linear attention layers do not make {layers}; mend the config.json"
            )
        return [one, _delta(linear["num_heads"], linear["head_dim"], linear["short_conv_kernel_size"], count)]
    types = fields.listed("indexer_types", layers)
    if types is None:
        return [one]
    shared = types.count("shared")
    return [replace(one, layers=layers - shared), replace(one, layers=shared, index_heads=0, index_dim=0)]


def _delta(heads: int, dim: int, conv: int, layers: int) -> Attention:
    """Kimi delta attention: as many key as value heads, state in bf16."""
    return Attention(
        layers=layers, kind="linear", heads=heads, kv_heads=heads, qk_dim=dim, v_dim=dim, linear_heads=heads, conv=conv
    )


def _compressed(fields: _Fields, layers: int) -> list[Attention]:
    ratios = fields.listed("compress_ratios", layers) or fields.listed("compress_rates", layers) or []
    plain = Attention(
        layers=0,
        kind="compressed",
        heads=fields.need("num_attention_heads"),
        kv_heads=1,
        qk_dim=fields.need("head_dim"),
        v_dim=fields.need("head_dim"),
        q_rank=fields.get("q_lora_rank"),
        rope_dim=fields.get("qk_rope_head_dim"),
        window=fields.need("sliding_window"),
        o_groups=fields.get("o_groups"),
        o_rank=fields.get("o_lora_rank"),
    )
    picking = replace(
        plain,
        topk=fields.get("index_topk"),
        index_heads=fields.get("index_n_heads"),
        index_dim=fields.get("index_head_dim"),
    )
    least = min((ratio for ratio in ratios if ratio), default=0)
    return [
        replace(picking if ratio == least and ratio else plain, layers=count, compress=max(int(ratio), 1))
        for ratio, count in Counter(ratios).items()
    ]


def _grouped(fields: _Fields, layers: int, hidden: int) -> list[Attention]:
    heads = fields.need("num_attention_heads", "n_head")
    if not fields.get("head_dim") and hidden % heads:
        raise BadInput(f"hidden_size {hidden} is no multiple of {heads} heads and head_dim is missing; add head_dim")
    dim = fields.get("head_dim", default=hidden // heads)
    full = Attention(
        layers=layers,
        kind="gqa",
        heads=heads,
        kv_heads=fields.get("num_key_value_heads", default=heads),
        qk_dim=dim,
        v_dim=dim,
        gate=heads * dim if fields.all.get("attn_output_gate") else 0,
    )
    if sparse := fields.all.get("sparse_attention_config"):
        return _block_sparse(full, sparse, layers)
    types = Counter(fields.listed("layer_types", layers) or ["full_attention"] * layers)
    if unknown := set(types) - {"full_attention", "sliding_attention", "linear_attention"}:
        raise BadInput(f"layer_types has {', '.join(sorted(unknown))}, which is not modelled")
    kinds = [replace(full, layers=types["full_attention"])]
    if types["sliding_attention"]:
        kinds.append(replace(full, layers=types["sliding_attention"], window=fields.need("sliding_window")))
    return kinds + _gated_delta(fields, types["linear_attention"])


def _gated_delta(fields: _Fields, layers: int) -> list[Attention]:
    if not layers:
        return []
    values = fields.need("linear_num_value_heads")
    return [
        Attention(
            layers=layers,
            kind="linear",
            heads=values,
            kv_heads=values,
            qk_dim=fields.need("linear_key_head_dim"),
            v_dim=fields.need("linear_value_head_dim"),
            linear_heads=fields.need("linear_num_key_heads"),
            conv=fields.need("linear_conv_kernel_dim"),
            state_bytes=4 if fields.all.get("mamba_ssm_dtype") == "float32" else 2,
        )
    ]


def _block_sparse(full: Attention, sparse: Mapping[str, Any], layers: int) -> list[Attention]:
    picked = sparse.get("sparse_attention_freq", [1] * layers)
    count, block = sum(picked[:layers]), int(sparse["sparse_block_size"])
    blocks = int(sparse["sparse_topk_blocks"]) + int(sparse.get("sparse_local_block", 0))
    one = replace(
        full,
        layers=count,
        topk=blocks * block,
        index_heads=int(sparse["sparse_num_index_heads"]),
        index_dim=int(sparse["sparse_index_dim"]),
        index_block=block,
    )
    return [replace(full, layers=layers - count), one]


def _moe(fields: _Fields, layers: int, kind: str) -> Moe | None:
    experts = fields.get("n_routed_experts", "num_local_experts", "num_experts")
    if not experts:
        return None
    own = ("intermediate_size",) if kind in EXPERT_WIDTH_IS_INTERMEDIATE else ()
    width = fields.need("moe_intermediate_size", *own)
    shared = fields.get("n_shared_experts", "num_shared_experts") * width
    return Moe(
        layers=layers - _dense_layers(fields, layers),
        experts=experts,
        top_k=fields.need("num_experts_per_tok", "num_experts_per_token", "experts_per_token"),
        width=width,
        shared=fields.get("shared_expert_intermediate_size", "shared_intermediate_size", default=shared),
        hidden=fields.get("routed_expert_hidden_size"),
    )


def _dense_layers(fields: _Fields, layers: int) -> int:
    """Layers of a model with experts that have none."""
    if types := fields.listed("mlp_layer_types", layers):
        return types.count("dense")
    if frequency := fields.listed("moe_layer_freq", layers):
        return frequency.count(0)
    if fields.all.get("mlp_only_layers"):
        return len(fields.all["mlp_only_layers"])
    return fields.get("first_k_dense_replace")


def _dense_width(fields: _Fields, kind: str) -> int:
    if kind in EXPERT_WIDTH_IS_INTERMEDIATE:
        return fields.need("dense_intermediate_size", "intermediate_size")
    return fields.need("dense_intermediate_size", "intermediate_size", "n_inner")
