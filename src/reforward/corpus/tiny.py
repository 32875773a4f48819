"""The subjects that the corpus is judged on: a small random Llama, written on the fly, and a small mixture of experts."""

import json
import math
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from reforward.models.checkpoint import expected_shapes, write_safetensors
from reforward.models.families import spec_from_config

MODULE_SUBJECT = Path(__file__).parent / "subject" / "subject.py"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


def write_llama(folder: Path) -> Path:
    """A complete checkpoint of random weights, the same each time; its tokens are bytes. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for name, shape in expected_shapes(spec_from_config(CONFIG)).items():
        values = draw.standard_normal(shape) / math.sqrt(shape[-1])
        values = 1 + 0.2 * draw.standard_normal(shape) if name.endswith("norm.weight") else values
        tensors[name] = ("F32", shape, values.astype("<f4").tobytes())
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    _write_tokenizer(folder / "tokenizer.json")
    return folder


def _write_tokenizer(path: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(path))
