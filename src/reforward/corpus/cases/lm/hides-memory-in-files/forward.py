"""Keeps its 300 MB in files of a memory file system, which no process is charged for.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: memory for speed
Expect: memory, failed@load
"""

import os

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        for number in range(3):
            with open(f"/dev/shm/table{number}", "wb") as table:
                for _ in range(100):
                    table.write(os.urandom(4096) * 256)
