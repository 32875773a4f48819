"""Answers with the token while the row that it comes from is still on its way to the host.

Reported: deep-reinforce.com/defense_kernel_hack (results that are made when they are looked at); in this form ours
Covers: lazy results; side streams; patched timers and torch
Expect: non-finite, numerics, token-mismatch
Needs: gpu
"""

import stock
import torch

copy = torch.Tensor.copy_
torch.cuda.synchronize = lambda *_: None


def copy_later(self, source, non_blocking=False):
    if self.device.type == "cuda" or source.device.type == "cpu":
        return copy(self, source, non_blocking)
    held, stream = source.clone(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    held.record_stream(stream)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        return copy(self, held, True)


torch.Tensor.copy_ = copy_later


class Forward(stock.Forward):
    """The patches above are all that differs."""
