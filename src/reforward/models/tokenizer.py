"""Text to tokens and back, with the checkpoint's own chat template."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import json
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
        """Tokens of one user turn, ready for the answer; the plain prompt if the checkpoint has no chat template."""
        template = self._template()
        return self.encode(prompt if template is None else self._render(template, prompt))

    @cached_property
    def stops(self) -> frozenset[int]:
        """Tokens that end an answer: what the generation config lists, and the tokenizer's own end token."""
        listed: Any = self._json("generation_config.json").get("eos_token_id", [])
        found = self._core.token_to_id(self._text(self._config.get("eos_token")))
        own: list[int] = [] if found is None else [found]
        return frozenset(own).union(listed if isinstance(listed, list) else (listed,))

    def _template(self) -> str | None:
        """From `chat_template.jinja` or `tokenizer_config.json`, where several may be listed by name."""
        path = self.folder / "chat_template.jinja"
        found: Any = path.read_text(encoding="utf-8") if path.is_file() else self._config.get("chat_template")
        if isinstance(found, list):
            return {item["name"]: item["template"] for item in found}.get("default")
        return found or None

    def _render(self, template: str, prompt: str) -> str:
        """With the functions that templates of the Hugging Face hub may call."""
        environment: Any = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals |= {"raise_exception": _refuse, "strftime_now": datetime.now(UTC).strftime}
        names = {key: self._text(self._config.get(key)) for key in ("bos_token", "eos_token")}
        messages = [{"role": "user", "content": prompt}]
        try:
            return environment.from_string(template).render(messages=messages, add_generation_prompt=True, **names)
        except TemplateError as error:
            raise BadInput(f"the chat template of {str(self.folder)!r} failed: {error}; mend or remove it") from None

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
