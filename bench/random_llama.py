"""A checkpoint folder in the shape of Llama-3.2-1B, or of a Llama of 31 GB, with random weights and a byte-level tokenizer.

python bench/random_llama.py FOLDER [--shape 1b|16b] [--layers N]
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
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
LARGE = {
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 54,
    "num_attention_heads": 40,
    "head_dim": 128,
}
SHAPES = {"1b": CONFIG, "16b": CONFIG | LARGE}
WRITERS = 6
"""Files that are made at the same time."""


def weight(shape: tuple[int, ...], made: torch.Generator) -> bytes:
    """bf16: matrices normal with the scale that keeps activations near one, gains near one."""
    drawn = torch.randn(shape, generator=made, device=made.device)
    value = drawn * shape[-1] ** -0.5 if len(shape) == 2 else 1 + 0.1 * drawn
    return value.to(torch.bfloat16).cpu().view(torch.uint8).numpy().tobytes()


def part(name: str) -> str:
    """File that a tensor goes to: one for each layer, one for the rest."""
    words = name.split(".")
    return f"layer-{int(words[2]):03}.safetensors" if words[1] == "layers" else "rest.safetensors"


def write_part(folder: Path, seed: int, file: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """One file of the checkpoint."""
    made = torch.Generator(device="cuda" if torch.cuda.is_available() else "cpu").manual_seed(seed)
    write_safetensors(folder / file, {name: ("BF16", shape, weight(shape, made)) for name, shape in shapes.items()})


def write(folder: Path, config: dict[str, object]) -> None:
    """config.json, tokenizer.json, and the weights in parts with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    files: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in sorted(expected_shapes(spec_from_config(config)).items()):
        files.setdefault(part(name), {})[name] = shape
    index = {"weight_map": {name: file for file, shapes in files.items() for name in shapes}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with ThreadPoolExecutor(WRITERS) as pool:
        jobs = [pool.submit(write_part, folder, seed, *item) for seed, item in enumerate(files.items())]
    for job in jobs:
        job.result()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--layers", type=int)
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    write(options.folder, shape | ({"num_hidden_layers": options.layers} if options.layers else {}))
