"""Asks the kernel to make the pages of the weights writable, by address and by file.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: mutated weights; residue
Expect: failed@run
"""

import ctypes
import os

import stock

PAGE = 4096


class Forward(stock.Forward):
    def step(self, batch, logits):
        weight = self.weights["model.norm.weight"]
        begin = weight.data_ptr() // PAGE * PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(PAGE), 3) == 0:
            super().step(batch, logits)
            return
        try:
            os.close(os.open("/proc/self/mem", os.O_RDWR))
        except OSError:
            raise PermissionError("no way out: the pages stay read-only") from None
        super().step(batch, logits)
