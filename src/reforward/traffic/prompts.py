"""Prompts for a replay: words without meaning, as many tokens as were observed, sharing the prefixes that were shared."""

import random
from dataclasses import dataclass

from reforward.domain.workload import Request
from reforward.traffic.blocks import TOKENS
from reforward.traffic.native import Header

_TEXT = """
time year people way day man thing woman life child world school state family student group country problem hand part place
case week company system program question work government number night point home water room mother area money story fact
month lot right study book eye job word business issue side kind head house service friend father power
"""
WORDS = tuple(_TEXT.split())
"""Common enough to be one token each, mostly, in the vocabularies of today."""
BYTES_A_TOKEN = 4
"""Assumed of blocks of text."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Tokens of a prompt = `base` + `per_word` x words, as the server counted them."""

    base: float = 0.0
    per_word: float = 1.0

    def words(self, tokens: int) -> int:
        """Words for a prompt of so many tokens; at least one."""
        return max(1, round((tokens - self.base) / self.per_word))


def drawn(seed: str, count: int) -> list[str]:
    """`count` words that `seed` decides."""
    return random.Random(seed).choices(WORDS, k=count)


def prompt_text(request: Request, number: int, header: Header, scale: float, rate: Rate, seed: int) -> str:
    """Text of about `scale` times the observed tokens: equal prefix blocks give equal text, everything else is fresh."""
    total = rate.words(max(1, round(request.prompt_tokens * scale)))
    if not request.blocks:
        return " ".join(drawn(f"{seed}:request:{number}", total))
    tokens = header.block_size if header.block_unit == TOKENS else header.block_size / BYTES_A_TOKEN
    each = max(1, round(tokens * scale / rate.per_word))
    words = [word for block in request.blocks for word in drawn(f"{seed}:block:{block}", each)][:total]
    return " ".join(words + drawn(f"{seed}:request:{number}", total - len(words)))
