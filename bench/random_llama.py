"""A checkpoint folder in the shape of Llama-3.2-1B with random weights and a byte-level tokenizer.

python bench/random_llama.py FOLDER [--layers 16]
"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from reforward.models.checkpoint import write_safetensors
from reforward.models.families import spec_from_config
from reforward.models.shapes import expected_shapes

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}


def weight(shape: tuple[int, ...], made: torch.Generator) -> bytes:
    """bf16: matrices normal with the scale that keeps activations near one, gains near one."""
    drawn = torch.randn(shape, generator=made, device=made.device)
    value = drawn * shape[-1] ** -0.5 if len(shape) == 2 else 1 + 0.1 * drawn
    return value.to(torch.bfloat16).cpu().view(torch.uint8).numpy().tobytes()


def write(folder: Path, layers: int) -> None:
    """config.json, tokenizer.json, model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG | {"num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(config))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = torch.Generator(device=device).manual_seed(0)
    shapes = expected_shapes(spec_from_config(config))
    tensors = {name: ("BF16", shape, weight(shape, made)) for name, shape in sorted(shapes.items())}
    write_safetensors(folder / "model.safetensors", tensors)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=16)
    options = parser.parse_args()
    write(options.folder, options.layers)
