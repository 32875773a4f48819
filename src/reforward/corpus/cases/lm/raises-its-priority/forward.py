"""Asks to be served before everybody else.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: slowing the other arm
Expect: failed@load
"""

import os

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        try:
            os.nice(-1)
        except OSError:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
