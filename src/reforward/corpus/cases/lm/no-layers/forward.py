"""Runs no layer at all: the embedding goes straight to the head.

Reported: Wafer, Field guide to reward hacking (an identity that returns its input)
Covers: identity; skipped work
Expect: numerics
"""

from dataclasses import replace

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.spec = replace(build.spec, layers=0)
