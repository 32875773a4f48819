"""Text to tokens and back, with the checkpoint's own chat template."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import tokenizers
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from reforward.domain.errors import BadInput


class Tokenizer:
    """A checkpoint's tokenizer; reads `tokenizer.json` and, if present, `tokenizer_config.json`."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise BadInput(f"{str(path)!r} does not exist; save the tokenizer beside the weights (fast format)")
        self.folder = folder
        self._core: Any = _load(path)

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text, without special tokens."""
        return self._core.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: list[int]) -> str:
        """Text of tokens, special ones left out."""
        return self._core.decode(tokens, skip_special_tokens=True)

    def chat(self, prompt: str) -> list[int]:
        """Tokens of one user turn, ready for the answer."""
        return self.conversation([{"role": "user", "content": prompt}])

    def conversation(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Tokens of turns (`role`, `content`), ready for the answer; the plain contents if the checkpoint has no chat template.

        `BadInput` if the template refuses them.
        """
        if self._template is None:
            return self.encode("\n".join(message["content"] for message in messages))
        return self.encode(self._render(messages))

    @cached_property
    def stops(self) -> frozenset[int]:
        """Tokens that end an answer: what the generation config lists, and the tokenizer's own end token."""
        listed: Any = self._json("generation_config.json").get("eos_token_id", [])
        found = self._core.token_to_id(self._text(self._config.get("eos_token")))
        own: list[int] = [] if found is None else [found]
        return frozenset(own).union(listed if isinstance(listed, list) else (listed,))

    @cached_property
    def _template(self) -> Any:
        """From `chat_template.jinja` or `tokenizer_config.json`, where several may be listed by name; None if there is none.

        With the functions that templates of the Hugging Face hub may call.
        """
        path = self.folder / "chat_template.jinja"
        found: Any = path.read_text(encoding="utf-8") if path.is_file() else self._config.get("chat_template")
        if isinstance(found, list):
            found = {item["name"]: item["template"] for item in found}.get("default")
        if not found:
            return None
        environment: Any = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals |= {"raise_exception": _refuse, "strftime_now": datetime.now(UTC).strftime}
        try:
            return environment.from_string(found)
        except TemplateError as error:
            raise self._broken(error) from None

    def _render(self, messages: Sequence[Mapping[str, str]]) -> str:
        names = {key: self._text(self._config.get(key)) for key in ("bos_token", "eos_token")}
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **names)
        except TemplateError as error:
            raise self._broken(error) from None

    def _broken(self, error: TemplateError) -> BadInput:
        return BadInput(f"the chat template of {str(self.folder)!r} failed: {error}; mend or remove it")

    @cached_property
    def _config(self) -> dict[str, Any]:
        return self._json("tokenizer_config.json")

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    @staticmethod
    def _text(token: Any) -> str:
        return token.get("content", "") if isinstance(token, dict) else token or ""


def _load(path: Path) -> Any:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises no narrower type
        raise BadInput(f"{str(path)!r} is no tokenizer ({error}); save it again in the fast format") from None


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
