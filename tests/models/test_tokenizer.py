"""Text, tokens, chat templates, and the tokens that end an answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Core
from tokenizers import decoders, models, pre_tokenizers

from reforward.domain.errors import BadInput
from reforward.models.tokenizer import Tokenizer

TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}{{ tail }}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A byte-level tokenizer without merges: one token for each byte, and two special ones."""
    core: Any = Core(
        models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    core.add_special_tokens(["<s>", "</s>"])
    core.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def configure(folder: Path, **config: Any) -> Tokenizer:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer(folder)


def test_text_comes_back(folder: Path) -> None:
    text = "Grüße, 世界! 12\n\tend"
    tokens = Tokenizer(folder).encode(text)
    assert len(tokens) == len(text.encode())
    assert Tokenizer(folder).decode(tokens) == text


def test_without_a_template_the_prompt_is_plain(folder: Path) -> None:
    assert Tokenizer(folder).chat("hi") == Tokenizer(folder).encode("hi")


def test_the_template_is_rendered_with_special_tokens(folder: Path) -> None:
    tokenizer = configure(folder, chat_template=TEMPLATE, bos_token="<s>", eos_token={"content": "</s>"})
    assert tokenizer.chat("hi") == [256, *tokenizer.encode("[user]hi"), 257]


def test_templates_are_found_where_checkpoints_put_them(folder: Path) -> None:
    listed = configure(folder, chat_template=[{"name": "rag", "template": "x"}, {"name": "default", "template": "y"}])
    assert listed.chat("hi") == listed.encode("y")
    (folder / "chat_template.jinja").write_text("z")
    assert Tokenizer(folder).chat("hi") == listed.encode("z")


@pytest.mark.parametrize(
    ("template", "words"),
    [("{{ raise_exception('roles must alternate') }}", "roles must alternate"), ("{% if %}", "template of"),
     ("{{ ''.__class__.__mro__ }}", "unsafe")],
)  # fmt: skip
def test_a_template_that_fails_is_bad_input(folder: Path, template: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        configure(folder, chat_template=template).chat("hi")


def test_stops_are_all_that_the_checkpoint_lists(folder: Path) -> None:
    assert Tokenizer(folder).stops == frozenset()
    assert configure(folder, eos_token="</s>").stops == {257}
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 5]}))
    assert configure(folder, eos_token="</s>").stops == {3, 5, 257}
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 3}))
    assert configure(folder).stops == {3}


def test_a_missing_tokenizer_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"tokenizer.json' does not exist"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", '{"model": {"type": "Nobody"}}'])
def test_what_is_no_tokenizer_is_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(BadInput, match=r"tokenizer.json' is no tokenizer"):
        Tokenizer(tmp_path)
