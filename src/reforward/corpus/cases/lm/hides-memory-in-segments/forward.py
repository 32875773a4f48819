"""Holds 300 MB in a System V segment that no process has attached.

Reported: ours: kernel memory that belongs to a namespace, not to a process
Covers: memory for speed
Expect: memory, failed@load
"""

import ctypes
import os

import stock

NBYTES, PRIVATE, CREATE = 300 << 20, 0, 0o1600
libc = ctypes.CDLL(None)
libc.shmget.argtypes = ctypes.c_int, ctypes.c_size_t, ctypes.c_int
libc.shmat.argtypes, libc.shmat.restype = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int), ctypes.c_void_p


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        segment = libc.shmget(PRIVATE, NBYTES, CREATE)
        if segment < 0:
            raise PermissionError("no way out: there are no segments")
        child = os.fork()
        if child == 0:
            ctypes.memset(libc.shmat(segment, None, 0), 1, NBYTES)
            os._exit(0)
        os.waitpid(child, 0)
