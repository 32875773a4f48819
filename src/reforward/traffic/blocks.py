"""Prefixes of prompts as keyed hashes: who shares a prefix can be seen, what it says cannot."""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence

TOKENS, BYTES = "token", "byte"
"""Units of a block: token ids, or bytes of UTF-8 where only the text is known."""
SIZES = {TOKENS: 64, BYTES: 256}
"""Units a block; 256 bytes of English are about 64 tokens."""
_DIGEST = 16


class PrefixHasher:
    """Hashes of a prompt's prefixes, one for each started block; hash i covers everything up to the end of block i.

    BLAKE2b with a secret key: without it, prompts can be neither recovered by guessing nor compared with those of another
    deployment. Of each link of the chain 53 bits are told, which every JSON reader holds exactly.
    """

    def __init__(self, key: bytes, unit: str) -> None:
        self._key, self.unit, self.size = key, unit, SIZES[unit]

    def __call__(self, prompt: tuple[int, ...] | str) -> tuple[int, ...]:
        """Empty for a prompt of the other unit."""
        if isinstance(prompt, str) != (self.unit == BYTES):
            return ()
        data = prompt.encode("utf-8", "replace") if isinstance(prompt, str) else array("I", prompt).tobytes()
        step = self.size * (1 if isinstance(prompt, str) else array("I").itemsize)
        return tuple(self._chain(data, step))

    def _chain(self, data: bytes, step: int) -> Iterator[int]:
        link = b""
        for start in range(0, len(data), step):
            link = hashlib.blake2b(link + data[start : start + step], key=self._key, digest_size=_DIGEST).digest()
            yield int.from_bytes(link[:7], "big") >> 3


def reused(prompts: Sequence[tuple[int, tuple[int, ...]]], covered: Callable[[int, int, int], int]) -> list[int]:
    """Leading tokens of each prompt (tokens, blocks) that an earlier one had: a prefix cache without bounds.

    `covered(tokens, blocks, of)` says how many tokens the first `blocks` blocks of `of` hold.
    """
    seen: set[int] = set()
    found: list[int] = []
    for tokens, blocks in prompts:
        known = next((place for place, block in enumerate(blocks) if block not in seen), len(blocks))
        found.append(min(tokens, covered(tokens, known, len(blocks))) if blocks else 0)
        seen.update(blocks)
    return found


def in_tokens(block: int) -> Callable[[int, int, int], int]:
    """For blocks of `block` tokens."""
    return lambda tokens, blocks, _of: min(tokens, blocks * block)


def in_shares(tokens: int, blocks: int, of: int) -> int:
    """For blocks of text: the same share of the tokens."""
    return round(tokens * blocks / of)
