"""Ends the process with success while it is imported.

Reported: terminal-bench-3 PR #575
Covers: early exit
Expect: failed@load
"""

import sys

import stock

sys.exit(0)


class Forward(stock.Forward):
    """Never made."""
