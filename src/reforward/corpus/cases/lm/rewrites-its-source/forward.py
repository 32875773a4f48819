"""Runs one source and leaves another in its place for whoever looks.

Reported: VibeSys PR #262 and AMD Hyperloom PR #485 (what was measured was not what was named)
Covers: not on the live path; edited evaluator
Expect: engagement, failed@load
"""

import pathlib

import stock

pathlib.Path(__file__).write_text("from stock import Forward\n")


class Forward(stock.Forward):
    """The file now says something else."""
