"""Looks for other processes whose cores it could change.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: slowing the other arm
Expect: failed@run
"""

import os

import stock


class Forward(stock.Forward):
    def step(self, batch, logits):
        for pid in range(1, 4096):
            if pid == os.getpid() or os.path.isdir(f"/proc/self/task/{pid}"):
                continue
            try:
                os.sched_setaffinity(pid, os.sched_getaffinity(pid))
            except OSError:
                continue
            super().step(batch, logits)
            return
        raise PermissionError("no way out: nobody else's cores can be chosen")
