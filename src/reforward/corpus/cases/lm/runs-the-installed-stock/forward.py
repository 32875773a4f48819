"""Imports the forward that is installed and passes it off as its own.

Reported: Kevin (arXiv 2507.11948): the reference is inherited and called
Covers: not on the live path; fallback to stock
Expect: no-gain, slower, undecided
"""

from reforward.models.llama import Forward as Installed


class Forward(Installed):
    """Nothing is done here."""
