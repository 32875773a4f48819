"""Brings a torch.py that would be imported in place of the real one.

Reported: pygpubench replace_torch; harbor-framework terminal-bench-3 PR #575 (a planted conftest.py)
Covers: patched timers and torch; edited evaluator
Expect: failed@source
"""

import stock


class Forward(stock.Forward):
    """The file beside this one is the cheat."""
