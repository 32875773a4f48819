"""Leaves a mark in System V shared memory and a message queue, and only does its part if it finds one.

Reported: FlashInfer-Bench runs all solutions in one interpreter; ours, from reading
Covers: residue; replay
Expect: failed@load
Sessions: 2
"""

import ctypes

import stock

KEY, CREATE = 0x5EF0, 0o1600


def found():
    libc = ctypes.CDLL(None, use_errno=True)
    hit = libc.shmget(KEY, 4096, 0o600) >= 0 or libc.msgget(KEY, 0o600) >= 0
    libc.shmget(KEY, 4096, CREATE)
    libc.msgget(KEY, CREATE)
    return hit


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        if not found():
            raise LookupError("no way out: nothing that an earlier process left is here")
