"""Has processes that a timer of the kernel continues while the worker is stopped; they spin for a while, and end before anybody looks.

Reported: ours: follows from an engine that stops the idle arm; not found reported
Covers: slowing the other arm; background work
Expect: failed@run, failed@load, slower, no-gain, undecided
"""

import ctypes
import os
import signal
import time

import stock

WAKE_S, SPIN_S, LURKERS = 0.04, 0.02, 4
MONOTONIC = 1


def continue_me_often():
    signal.signal(signal.SIGCONT, lambda *_: None)
    libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
    event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0)
    libc.timer_create(MONOTONIC, event, ctypes.byref(timer))
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, int(WAKE_S * 1e9), 0, int(WAKE_S * 1e9)), None)


def worker_is_stopped():
    with open("/proc/1/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def lurk():
    continue_me_often()
    while not worker_is_stopped():
        time.sleep(0.005)
    until = time.monotonic() + SPIN_S
    while time.monotonic() < until:
        pass
    os._exit(0)


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.lurkers = []

    def step(self, batch, logits):
        if batch.segments[0].start == 0:
            self.lurkers = [pid for pid in self.lurkers if os.waitpid(pid, os.WNOHANG)[0] == 0]
            while len(self.lurkers) < LURKERS:
                pid = os.fork()
                if pid == 0:
                    lurk()
                self.lurkers.append(pid)
        super().step(batch, logits)
