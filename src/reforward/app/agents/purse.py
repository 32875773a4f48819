"""Money: what the agents of a run have cost together, and what they may cost."""

import math
import re
import threading

from reforward.domain.errors import BadInput


class Purse:
    """Each author tells its own total as it grows. Safe to use from several threads."""

    def __init__(self, most_usd: float = math.inf) -> None:
        self.most_usd = most_usd
        self._spent: dict[str, float] = {}
        self._lock = threading.Lock()

    def spend(self, author: str, total_usd: float) -> None:
        """What one author has cost until now."""
        with self._lock:
            self._spent[author] = total_usd

    @property
    def empty(self) -> bool:
        """Nobody may go on."""
        with self._lock:
            return sum(self._spent.values()) >= self.most_usd


def parse_usd(text: str) -> float:
    """`5usd`, `0.50usd` in US dollars."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*usd", text.strip().lower())
    if not match or float(match[1]) <= 0:
        raise BadInput(f"--max-cost {text!r} is no amount of money; write a number above zero and usd, such as 5usd")
    return float(match[1])
