"""Leaves a link in its build that points to whatever will be there later.

Reported: tinygrad issue 15034 (stale builds); ours in this form
Covers: old build
Expect: failed@build
"""

import stock


class Forward(stock.Forward):
    """The build is the cheat."""
