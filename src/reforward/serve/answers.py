"""Answers as OpenAI's API tells them: whole, or in chunks of a stream."""

import secrets
import time
from collections.abc import Sequence as Many
from typing import Any

from reforward.serve.protocol import Delivery
from reforward.serve.sampling import Chosen
from reforward.serve.sequence import Piece, Sequence
from reforward.serve.text import UNFINISHED, Decode

LEAST = -9999.0
"""Stands for minus infinity, which JSON does not have."""


class Answer:
    """Renders one request's choices. All methods return JSON-shaped values."""

    def __init__(self, how: Delivery, model: str, decode: Decode) -> None:
        self.how, self.model, self.decode = how, model, decode
        self.id = ("chatcmpl-" if how.chat else "cmpl-") + secrets.token_hex(12)
        self.created = int(time.time())
        self.offsets: dict[int, int] = {}

    def whole(self, choices: Many[tuple[Sequence, Many[Piece]]], usage: dict[str, int]) -> dict[str, Any]:
        """The answer to a request without a stream."""
        made = [self._choice(index, sequence, pieces) for index, (sequence, pieces) in enumerate(choices)]
        return self._head("chat.completion" if self.how.chat else "text_completion") | {"choices": made, "usage": usage}

    def first(self, index: int) -> dict[str, Any]:
        """The chunk of a chat that says who speaks."""
        return self._chunk(index, {"role": "assistant", "content": ""}, None)

    def chunk(self, index: int, piece: Piece, prompt: Many[int] | None) -> dict[str, Any]:
        """What one token added; `prompt` goes with the first one if ids are told."""
        told = {"content": piece.text} if self.how.chat else piece.text
        chunk = self._chunk(index, told, piece.reason)
        choice = chunk["choices"][0]
        choice["logprobs"] = self._logprobs(index, [piece])
        if self.how.ids:
            choice["token_ids"] = [] if piece.token is None else [piece.token]
            if prompt is not None:
                choice["prompt_token_ids"] = list(prompt)
        return chunk

    def last(self, usage: dict[str, int]) -> dict[str, Any]:
        """The chunk that counts."""
        kind = "chat.completion.chunk" if self.how.chat else "text_completion"
        return self._head(kind) | {"choices": [], "usage": usage}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, index: int, told: Any, reason: str | None) -> dict[str, Any]:
        key, kind = ("delta", "chat.completion.chunk") if self.how.chat else ("text", "text_completion")
        choice = {"index": index, key: told, "logprobs": None, "finish_reason": reason}
        return self._head(kind) | {"choices": [choice]} | ({"usage": None} if self.how.usage else {})

    def _choice(self, index: int, sequence: Sequence, pieces: Many[Piece]) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        told = {"message": {"role": "assistant", "content": text, "refusal": None}} if self.how.chat else {"text": text}
        logprobs = self._logprobs(index, [piece for piece in pieces if piece.token is not None])
        choice = {"index": index, **told, "logprobs": logprobs, "finish_reason": sequence.reason}
        ids = {"token_ids": list(sequence.produced), "prompt_token_ids": list(sequence.prompt)}
        return choice | (ids if self.how.ids else {})

    def _logprobs(self, index: int, pieces: Many[Piece]) -> dict[str, Any] | None:
        chosen = [piece.chosen for piece in pieces if piece.chosen is not None]
        if not chosen:
            return None
        if self.how.chat:
            return {
                "content": [self._entry(one.token, one.logprob) | {"top_logprobs": self._top(one)} for one in chosen]
            }
        words = [self._word(one.token) for one in chosen]
        offsets, at = list[int](), self.offsets.get(index, 0)
        for word in words:
            offsets.append(at)
            at += len(word)
        self.offsets[index] = at
        tops = [{self._key(token): max(value, LEAST) for token, value in one.top} for one in chosen]
        values = [max(one.logprob, LEAST) for one in chosen]
        return {"tokens": words, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

    def _top(self, one: Chosen) -> list[dict[str, Any]]:
        return [self._entry(token, value) for token, value in one.top]

    def _entry(self, token: int, value: float) -> dict[str, Any]:
        word = self._word(token)
        return {"token": word, "logprob": max(value, LEAST), "bytes": list(word.encode())}

    def _key(self, token: int) -> str:
        """Its text, or what vLLM writes for tokens that are no text by themselves, so that no two are the same."""
        word = self._word(token)
        return word if word and UNFINISHED not in word else f"token_id:{token}"

    def _word(self, token: int) -> str:
        return self.decode([token])
