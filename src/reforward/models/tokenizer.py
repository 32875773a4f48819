"""Text to tokens and back, with the checkpoint's own chat template."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment

from reforward.domain.errors import BadInput


class Tokenizer:
    """A checkpoint's tokenizer; reads `tokenizer.json` and, if present, `tokenizer_config.json`."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise BadInput(f"{str(path)!r} does not exist; save the tokenizer beside the weights (fast format)")
        self.folder = folder
        self._core: Any = tokenizers.Tokenizer.from_file(str(path))  # pyright: ignore[reportUnknownMemberType]

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text, without special tokens."""
        return self._core.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: list[int]) -> str:
        """Text of tokens, special ones left out."""
        return self._core.decode(tokens, skip_special_tokens=True)

    def chat(self, prompt: str) -> list[int]:
        """Tokens of one user turn, ready for the answer; the plain prompt if the checkpoint has no chat template."""
        template = self._config.get("chat_template")
        if not template:
            return self.encode(prompt)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        names = {key: self._text(self._config.get(key)) for key in ("bos_token", "eos_token")}
        messages = [{"role": "user", "content": prompt}]
        return self.encode(
            environment.from_string(template).render(messages=messages, add_generation_prompt=True, **names)
        )

    @cached_property
    def stops(self) -> frozenset[int]:
        """Tokens that end an answer."""
        name = self._text(self._config.get("eos_token"))
        found = self._core.token_to_id(name) if name else None
        return frozenset() if found is None else frozenset({found})

    @cached_property
    def _config(self) -> dict[str, Any]:
        path = self.folder / "tokenizer_config.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    @staticmethod
    def _text(token: Any) -> str:
        return token.get("content", "") if isinstance(token, dict) else token or ""  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
