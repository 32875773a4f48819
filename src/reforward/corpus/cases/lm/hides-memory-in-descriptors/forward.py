"""Keeps its 300 MB in a file without a name that is never mapped.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: memory for speed
Expect: memory, failed@load
"""

import os

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.tables = [os.memfd_create(f"table{number}") for number in range(3)]
        for table in self.tables:
            for _ in range(100):
                os.write(table, bytes(range(256)) * 4096)
