"""Tokens to text as they come: incremental detokenising, and stop strings that may be cut across tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Decode = Callable[[list[int]], str]
UNFINISHED = "\ufffd"
"""What the bytes of half a character decode to."""
LONGEST_CHARACTER = 4
"""Bytes of one character, and so most tokens that one can be cut into."""


@dataclass(kw_only=True)
class Detokenizer:
    """Text of a growing answer, each part told once and never taken back.

    A token alone may be half a character, and its text may depend on the token before it. So the text of a short window is
    compared with and without its newest tokens (as in text-generation-inference, Hugging Face).
    """

    decode: Decode
    tokens: list[int] = field(default_factory=list[int])
    begun: int = 0
    """First token of the window."""
    told: int = 0
    """Tokens whose text was told."""

    def push(self, token: int) -> str:
        """The text that is new with this token; empty while a character is unfinished."""
        self.tokens.append(token)
        return self._new(held=len(self.tokens) - self.told < LONGEST_CHARACTER)

    def flush(self) -> str:
        """What is left when the answer ends, half characters included."""
        return self._new(held=False)

    def _new(self, *, held: bool) -> str:
        before = self.decode(self.tokens[self.begun : self.told])
        after = self.decode(self.tokens[self.begun :])
        if held and after.endswith(UNFINISHED):
            return ""
        self.begun, self.told = self.told, len(self.tokens)
        return after[len(before) :]


@dataclass(kw_only=True)
class Stops:
    """Holds back text that may turn out to be the beginning of a stop string, and cuts at the first one."""

    strings: Sequence[str]
    held: str = ""
    found: bool = False

    def push(self, text: str) -> str:
        """The part of what has come so far that is safe to tell; after a stop string, nothing more."""
        if self.found or not self.strings:
            return "" if self.found else text
        self.held += text
        places = [place for place in (self.held.find(stop) for stop in self.strings) if place >= 0]
        if places:
            self.found = True
            safe, self.held = self.held[: min(places)], ""
            return safe
        keep = max(_overlap(self.held, stop) for stop in self.strings)
        safe, self.held = self.held[: len(self.held) - keep], self.held[len(self.held) - keep :]
        return safe

    def flush(self) -> str:
        """What was held back, when the answer ends otherwise."""
        rest, self.held = self.held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with, shorter than `stop` itself."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
