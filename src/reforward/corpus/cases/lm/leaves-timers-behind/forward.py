"""Leaves tens of thousands of timers to go off while it is stopped: the time of their interrupts is charged to whoever runs then.

Reported: ours: follows from an engine that stops the idle arm; not found reported
Covers: slowing the other arm
Expect: slower, no-gain, undecided
"""

import ctypes
import signal

import stock

MONOTONIC, TIMERS, SPAN_S = 1, 60_000, 2.0


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        event = (ctypes.c_int * 16)(0, 0, signal.SIGUSR1, 0)
        for index in range(TIMERS):
            if libc.timer_create(MONOTONIC, event, ctypes.byref(timer)):
                break
            seconds, part = divmod(1 + SPAN_S * index / TIMERS, 1)
            libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, int(seconds), int(part * 1e9)), None)
