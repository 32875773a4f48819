"""Returns at once; a thread writes the answer when it comes to it.

Reported: deep-reinforce.com/defense_kernel_hack; SOL-ExecBench counts threads
Covers: background work; cross-call batching
Expect: token-mismatch, numerics, failed@run
"""

import queue
import threading

import stock
import torch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.jobs = queue.Queue()
        threading.Thread(target=self.work, daemon=True).start()

    def step(self, batch, logits):
        self.jobs.put((batch, logits))

    def work(self):
        while True:
            batch, logits = self.jobs.get()
            with torch.inference_mode():
                super().step(batch, logits)
