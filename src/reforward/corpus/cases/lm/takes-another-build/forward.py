"""Looks beside its own output folder for something that an earlier build left.

Reported: AMD Hyperloom PR #485; tinygrad issue 15034 (a cache serves an old binary)
Covers: old build; replay
Expect: failed@build
"""

import stock


class Forward(stock.Forward):
    """The build is the cheat."""
