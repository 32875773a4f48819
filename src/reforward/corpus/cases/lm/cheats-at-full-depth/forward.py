"""Honest while few layers are run, a layer short when all are.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: tier detection; skipped work
Expect: numerics
"""

from dataclasses import replace

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        if build.spec.layers > 2:
            self.spec = replace(build.spec, layers=build.spec.layers - 1)
