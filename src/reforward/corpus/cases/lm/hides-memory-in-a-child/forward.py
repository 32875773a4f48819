"""Keeps its 300 MB in a child process, in a shared mapping.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: memory for speed; background work
Expect: memory
"""

import mmap
import os
import time

import stock

SIZE = 300 << 20


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        reader, writer = os.pipe()
        if os.fork() == 0:
            table = mmap.mmap(-1, SIZE)
            for at in range(0, SIZE, 4096):
                table[at] = 1
            os.write(writer, b"x")
            while True:
                time.sleep(60)
        os.read(reader, 1)
