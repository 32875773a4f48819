"""Checkpoint folders: the bytes are found where `safetensors` finds them, and every kind of damage is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from models import tiny
from reforward.domain.errors import BadInput
from reforward.models import checkpoint

FILE = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A complete checkpoint, written by `safetensors` itself."""
    (tmp_path / "config.json").write_text(json.dumps(tiny.config("qwen2")))
    (tmp_path / "tokenizer.json").write_text("{}")
    safetensors.torch.save_file(tiny.weights("qwen2"), tmp_path / FILE, metadata={"format": "pt"})
    return tmp_path


def resave(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The weights again, with a change to the dictionary."""
    weights = dict(tiny.weights("qwen2"))
    change(weights)
    safetensors.torch.save_file(weights, folder / FILE)


def reheader(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The same bytes under a changed header."""
    data = (folder / FILE).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    (folder / FILE).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def test_bytes_lie_where_the_entries_say(folder: Path) -> None:
    found = checkpoint.read_checkpoint(folder)
    expected = tiny.weights("qwen2")
    assert [entry.name for entry in found.tensors] == sorted(expected)
    assert (found.dtype, found.spec) == ("float32", tiny.spec("qwen2"))
    assert found.nbytes == sum(tensor.nbytes for tensor in expected.values())
    for entry in found.tensors:
        data = entry.file.read_bytes()[entry.offset : entry.offset + entry.nbytes]
        assert torch.equal(
            torch.frombuffer(bytearray(data), dtype=torch.float32).view(entry.shape), expected[entry.name]
        )


def test_shards_are_one_checkpoint(folder: Path) -> None:
    whole = checkpoint.weights_hash(checkpoint.read_checkpoint(folder).tensors)
    weights = tiny.weights("qwen2")
    parts = {f"model-0000{part + 1}-of-00002.safetensors": sorted(weights)[part::2] for part in range(2)}
    for file, names in parts.items():
        safetensors.torch.save_file({name: weights[name] for name in names}, folder / file)
    (folder / FILE).unlink()
    index = {"weight_map": {name: file for file, names in parts.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    sharded = checkpoint.read_checkpoint(folder)
    assert {entry.file.name for entry in sharded.tensors} == set(parts)
    assert checkpoint.weights_hash(sharded.tensors) == whole
    (folder / min(parts)).unlink()
    with pytest.raises(BadInput, match=f"lacks {min(parts)}"):
        checkpoint.read_checkpoint(folder)


def test_the_hash_covers_every_byte(folder: Path) -> None:
    before = checkpoint.weights_hash(checkpoint.read_checkpoint(folder).tensors)
    last = max(checkpoint.read_checkpoint(folder).tensors, key=lambda entry: entry.offset)
    data = bytearray((folder / FILE).read_bytes())
    data[last.offset + last.nbytes - 1] ^= 1
    (folder / FILE).write_bytes(data)
    assert checkpoint.weights_hash(checkpoint.read_checkpoint(folder).tensors) != before


def test_what_we_write_others_read(tmp_path: Path) -> None:
    weights = {"a": torch.arange(5.0), "b": torch.ones(2, 3, dtype=torch.bfloat16), "c": torch.zeros(1)}
    kinds = {"a": "F32", "b": "BF16", "c": "F32"}
    raw = {name: (kinds[name], tuple(t.shape), t.view(torch.uint8).numpy().tobytes()) for name, t in weights.items()}
    checkpoint.write_safetensors(tmp_path / FILE, raw)
    entries = checkpoint.read_header(tmp_path / FILE)
    assert all(entry.offset % checkpoint.ALIGN == 0 for entry in entries)
    data = (tmp_path / FILE).read_bytes()
    for entry in entries:
        own = torch.frombuffer(bytearray(data[entry.offset : entry.offset + entry.nbytes]), dtype=torch.uint8)
        assert torch.equal(own, weights[entry.name].view(torch.uint8).flatten())


def bias_of_layer_0(header: dict[str, Any]) -> dict[str, Any]:
    return header["model.layers.0.self_attn.k_proj.bias"]


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "config.json' does not exist"),
    "config is no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json' is damaged"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "Expected `object`, got `array`"),
    "config is a well": (lambda f: (f / "config.json").write_text("[" * 10**5), "recursion"),
    "index is a list": (lambda f: (f / "model.safetensors.index.json").write_text("[]"), "index.json' is damaged"),
    "index of numbers": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": 5}}'),
        "Expected `str`, got `int`",
    ),
    "index of a name that is too long": (
        lambda f: (f / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "9" * 400}})),
        "no plain file name",
    ),
    "index that leads elsewhere": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}'),
        "no plain file name",
    ),
    "tokenizer is a list": (lambda f: (f / "tokenizer.json").write_text("[]"), "tokenizer.json' is damaged"),
    "vocabulary is a number": (
        lambda f: (f / "tokenizer.json").write_text('{"model": {"vocab": 5}}'),
        "tokenizer.json' is damaged.*model.vocab",
    ),
    "added token without id": (
        lambda f: (f / "tokenizer.json").write_text('{"added_tokens": [{}]}'),
        "required field `id`",
    ),
    "two files with one tensor": (lambda f: shutil.copy(f / FILE, f / "more.safetensors"), "both hold"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer.json"),
    "index without a map": (
        lambda f: (f / "model.safetensors.index.json").write_text("{}"),
        "index.json' is damaged .*required field `weight_map`",
    ),
    "another model's tokenizer": (
        lambda f: (f / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 131}]}'),
        "has token 131, but config.json says vocab_size=131",
    ),
    "another model's unigrams": (
        lambda f: (f / "tokenizer.json").write_text(json.dumps({"model": {"vocab": [["a", 0.0]] * 140}})),
        "has token 139",
    ),
    "no weights": (lambda f: (f / FILE).unlink(), "lacks \\*.safetensors"),
    "empty file": (lambda f: (f / FILE).write_bytes(b""), "truncated or no safetensors"),
    "header too long": (lambda f: (f / FILE).write_bytes(b"\xff" * 64), "header claims"),
    "header is no JSON": (
        lambda f: (f / FILE).write_bytes((4).to_bytes(8, "little") + b"nope"),
        "the header is damaged",
    ),
    "header is a list": (lambda f: (f / FILE).write_bytes((2).to_bytes(8, "little") + b"[]"), "the header is damaged"),
    "header is a well": (
        lambda f: (f / FILE).write_bytes((10**5).to_bytes(8, "little") + b'{"a":' * 20_000),
        "the header is damaged",
    ),
    "entry is a number": (lambda f: reheader(f, lambda h: h.update({"x": 5})), "x is damaged .*got `int`"),
    "shape of text": (lambda f: reheader(f, lambda h: bias_of_layer_0(h).update(shape="16")), "got `str`.*shape"),
    "negative shape": (lambda f: reheader(f, lambda h: bias_of_layer_0(h).update(shape=[-4, -4])), "int` >= 0"),
    "three offsets": (
        lambda f: reheader(f, lambda h: bias_of_layer_0(h).update(data_offsets=[0, 4, 8])),
        "data_offsets",
    ),
    "truncated": (lambda f: (f / FILE).write_bytes((f / FILE).read_bytes()[:-3]), "truncated, .* download"),
    "missing tensor": (lambda f: resave(f, lambda w: w.pop("model.norm.weight")), "no tensor 'model.norm.weight'"),
    "misshapen tensor": (
        lambda f: resave(f, lambda w: w.update({"model.norm.weight": torch.ones(3)})),
        "'model.norm.weight' has shape \\(3,\\)",
    ),
    "unexplained tensor": (
        lambda f: resave(f, lambda w: w.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(8)})),
        "1 tensors that config.json does not explain, 'model.layers.0.self_attn.q_norm.weight'",
    ),
    "mixed types": (
        lambda f: resave(f, lambda w: w.update({"model.norm.weight": w["model.norm.weight"].half()})),
        "mix the types",
    ),
    "unknown type": (
        lambda f: reheader(f, lambda h: bias_of_layer_0(h).update(dtype="F8_E4M3")),
        "has type 'F8_E4M3'; known are",
    ),
    "incomplete entry": (
        lambda f: reheader(f, lambda h: bias_of_layer_0(h).pop("shape")),
        "k_proj.bias is damaged .*`shape`",
    ),
    "wrong span": (
        lambda f: reheader(f, lambda h: bias_of_layer_0(h).update(data_offsets=[0, 4])),
        "but its shape needs 64 bytes",
    ),
    "overlap": (
        lambda f: reheader(f, lambda h: bias_of_layer_0(h).update(data_offsets=[0, 64])),
        "overlap; file is corrupt",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(folder: Path, damage: str) -> None:
    make, words = DAMAGE[damage]
    make(folder)
    with pytest.raises(BadInput, match=words):
        checkpoint.read_checkpoint(folder)


def test_harmless_extras_are_not_damage(folder: Path) -> None:
    extras = {"lm_head.weight": torch.ones(131, 48), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    resave(folder, lambda weights: weights.update(extras))
    assert extras.keys().isdisjoint(entry.name for entry in checkpoint.read_checkpoint(folder).tensors)
