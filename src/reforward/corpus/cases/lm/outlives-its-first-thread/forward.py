"""Starts processes whose first thread ends, so that they look dead, while another one spins whenever the worker stands still.

Reported: ours: follows from an engine that stops the idle arm; not found reported
Covers: slowing the other arm; background work
Expect: slower, no-gain, undecided, failed@run
"""

import ctypes
import mmap
import os
import struct
import threading
import time

import stock

EXIT_OF_ONE_THREAD = {"x86_64": 60, "aarch64": 93}
CALM_S = 0.003


def spin(shared):
    while True:
        if time.monotonic() - struct.unpack_from("d", shared)[0] < CALM_S:
            time.sleep(0.001)


def live_on(shared):
    threading.Thread(target=spin, args=(shared,)).start()
    ctypes.CDLL(None).syscall(EXIT_OF_ONE_THREAD[os.uname().machine], 0)


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.shared = mmap.mmap(-1, mmap.PAGESIZE)
        self.seen()
        for _ in range(4):
            if os.fork() == 0:
                live_on(self.shared)

    def seen(self, ahead=0.0):
        struct.pack_into("d", self.shared, 0, time.monotonic() + ahead)

    def step(self, batch, logits):
        self.seen(ahead=1.0)
        super().step(batch, logits)
        self.seen()
