"""Secret token content: windows of real English text, drawn by a nonce.

The source is the help text that ships with CPython (`pydoc_data.topics`): always present, about 700 kB of prose and
code. A sequence is stitched from short windows at random places, so that no table of it can be made beforehand.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache
from pydoc_data import topics

from reforward.domain.errors import BadInput

WINDOW = 48
"""Tokens that one window contributes."""
CHARACTERS = 8 * WINDOW

Encode = Callable[[str], Sequence[int]]


@cache
def corpus() -> str:
    """All topics in one string, in a fixed order."""
    return "\n".join(text for _, text in sorted(topics.topics.items()))


def prompts(nonce: str, lengths: Sequence[int], encode: Encode) -> tuple[tuple[int, ...], ...]:
    """One token sequence per length, the same for the same nonce and tokenizer."""
    draw = random.Random(nonce)
    return tuple(_sequence(draw, length, encode) for length in lengths)


def _sequence(draw: random.Random, length: int, encode: Encode) -> tuple[int, ...]:
    tokens: list[int] = []
    text = corpus()
    while len(tokens) < length:
        start = draw.randrange(len(text) - CHARACTERS)
        window = encode(text[start : start + CHARACTERS])[1 : WINDOW + 1]
        if not window:
            raise BadInput("the tokenizer gives no tokens for plain English text; check tokenizer.json")
        tokens += window
    return tuple(tokens[:length])
