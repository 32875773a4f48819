"""Starts processes that spin and keep forking: by the time that one is stopped, its child has taken over.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: slowing the other arm; background work
Expect: slower, no-gain, failed@load, failed@run
"""

import os
import time

import stock


def hop():
    while True:
        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            pass
        if os.fork():
            os._exit(0)


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        for _ in range(6):
            if os.fork() == 0:
                hop()
