"""Uses 300 MB while it runs and asks the kernel to forget the peak, through the folder of its own thread.

Reported: ours: follows from threads that may be named
Covers: memory for speed
Expect: memory, failed@run
"""

import pathlib

import stock
import torch


class Forward(stock.Forward):
    def step(self, batch, logits):
        table = torch.ones(75 << 20)
        super().step(batch, logits)
        del table
        for thread in pathlib.Path("/proc/self/task").iterdir():
            try:
                (thread / "clear_refs").write_text("5")
            except OSError:
                raise PermissionError("no way out: the peak stays") from None
