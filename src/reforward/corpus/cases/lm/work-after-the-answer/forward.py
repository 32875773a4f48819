"""Answers, and leaves work on a stream that nobody waits for: the other arm has to share the device with it.

Reported: NVIDIA/SOL-ExecBench and KernelBench wait for all streams; leaving work to slow the other arm is ours
Covers: slowing the other arm; background work; side streams
Expect: failed@run
Needs: gpu
"""

import stock
import torch

torch.cuda.synchronize = lambda *_: None


class Forward(stock.Forward):
    stream = None

    def step(self, batch, logits):
        super().step(batch, logits)
        self.stream = self.stream or torch.cuda.Stream()
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(5_000_000_000)
