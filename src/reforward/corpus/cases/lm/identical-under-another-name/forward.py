"""The stock forward with another name on it: the same code must never be faster than itself.

Reported: cap-evolve PR #317; AMD Hyperloom environment docs (58 % spread of an unchanged configuration)
Covers: identical arms
Expect: no-gain, slower, undecided
"""

import stock


class Discovery(stock.Forward):
    """The same."""


Forward = Discovery
