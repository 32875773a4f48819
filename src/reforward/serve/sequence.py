"""One answer in the making, held by the front: its prompt, what was produced, its text, and why it ended.

A worker holds nothing that could not be made again from here: that is what makes resume possible.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from reforward.serve.sampling import Chosen, Drawing, Row, choose, logprobs
from reforward.serve.text import Decode, Detokenizer, Stops

Reason = Literal["stop", "length", "abort", "error"]
_NUMBERS = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a client asks of one answer, apart from its prompt."""

    drawing: Drawing = field(default_factory=Drawing)
    most: int = 16
    """Tokens, at least 1."""
    stops: tuple[str, ...] = ()
    ends: frozenset[int] = frozenset()
    """Tokens that end the answer; empty if it goes on regardless."""
    logprobs: int | None = None
    """How many of the likeliest tokens to tell beside each; None tells no log-probabilities."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one token added to an answer, or how it ended."""

    token: int | None
    text: str
    chosen: Chosen | None = None
    reason: Reason | None = None
    """Set on the last piece."""
    error: str = ""
    at: float = 0.0
    """`time.monotonic()` when it was made."""


@dataclass(kw_only=True)
class Notes:
    """What a rollout keeps of one sequence of its experiment."""

    arm: Literal["canary", "control"]
    candidate: str = ""
    """That gave it its tokens; `mixed` once there were several."""
    logprobs: list[float] = field(default_factory=list[float])
    """Of each token, by the row that it came from."""
    decodes: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """Answers in it, and seconds, of each call that gave it a token and only decoded."""

    def take(self, candidate: str, logprob: float, decode: tuple[int, float] | None) -> None:
        """One more token."""
        self.candidate = candidate if self.candidate in ("", candidate) else "mixed"
        self.logprobs.append(logprob)
        if decode is not None:
            self.decodes.append(decode)


Deliver = Callable[[Piece], None]
"""Hands a piece to whoever waits for it; called from the thread that drives the worker."""


@dataclass(kw_only=True, eq=False)
class Sequence:
    """A request in flight. Changed by one thread only."""

    prompt: tuple[int, ...]
    wish: Wish
    decode: Decode
    deliver: Deliver
    client: str = ""
    """Who asks, for fair admission."""
    number: int = field(default_factory=lambda: next(_NUMBERS))
    produced: list[int] = field(default_factory=list[int])
    slot: int | None = None
    stored: int = 0
    """Tokens that the worker of the moment holds for it."""
    reason: Reason | None = None
    arrived_at: float = field(default_factory=time.monotonic)
    began_at: float = 0.0
    """First given a slot; 0 while it waits."""
    moves: int = 0
    """Times that it was begun anew or handed over to another worker."""
    falls: float = 0.0
    """Workers that died under it since its last token, weighted."""
    served_by: str = ""
    """Candidate that made its last token."""
    notes: Notes | None = None
    """While a rollout counts it."""

    def __post_init__(self) -> None:
        self.words = Detokenizer(decode=self.decode)
        self.stop = Stops(strings=self.wish.stops)

    @property
    def length(self) -> int:
        """Tokens that are known: prompt and produced."""
        return len(self.prompt) + len(self.produced)

    @property
    def longest(self) -> int:
        """Positions that it may come to need. The last token of an answer is never stored."""
        return len(self.prompt) + self.wish.most - 1

    @property
    def pending(self) -> int:
        """Tokens that are known and not yet stored; 1 while it decodes."""
        return self.length - self.stored

    @property
    def left(self) -> int:
        """Tokens that it may still produce."""
        return self.wish.most - len(self.produced)

    def twin(self, *, deliver: Deliver, notes: Notes) -> "Sequence":
        """The same request once more, from the beginning."""
        return Sequence(
            prompt=self.prompt, wish=self.wish, decode=self.decode, deliver=deliver, client=self.client, notes=notes
        )

    def upcoming(self, count: int) -> tuple[int, ...]:
        """The next `count` tokens to store."""
        begin, split = self.stored, len(self.prompt)
        if begin >= split:
            return tuple(self.produced[begin - split : begin - split + count])
        return (*self.prompt[begin : begin + count], *self.produced[: max(0, begin + count - split)])

    def draw(self, row: Row) -> int:
        """The token that this row gives. A pure function of the row and of how far the answer has come."""
        return choose(row, self.wish.drawing, len(self.produced))

    def take(self, token: int, row: Row | None) -> None:
        """One more token: tell its text, and end if it is the last. `row` may be None if no log-probabilities are wanted."""
        wanted = self.wish.logprobs
        chosen = None if wanted is None or row is None else logprobs(row, token, wanted)
        self.produced.append(token)
        self.falls = 0.0
        text = self.stop.push("" if token in self.wish.ends else self.words.push(token))
        if token in self.wish.ends or self.stop.found:
            self.end("stop", token=token, text=text, chosen=chosen)
        elif not self.left:
            self.end("length", token=token, text=text, chosen=chosen)
        else:
            self.deliver(Piece(token=token, text=text, chosen=chosen, at=time.monotonic()))

    def end(
        self, reason: Reason, *, token: int | None = None, text: str = "", chosen: Chosen | None = None, error: str = ""
    ) -> None:
        """The last piece, with all text that was held back; nothing if it has ended already."""
        if self.reason is not None:
            return
        self.reason = reason
        rest = "" if self.stop.found else self.stop.push(self.words.flush()) + self.stop.flush()
        now = time.monotonic()
        self.deliver(Piece(token=token, text=text + rest, chosen=chosen, reason=reason, error=error, at=now))
