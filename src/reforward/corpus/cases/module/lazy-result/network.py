"""Returns tensors that do the work, and much more of it, when somebody looks at them: after the clock, it hopes.

Reported: CUDA-L1 issue 12 (600x); reference-kernels issue 161; SOL-ExecBench
Covers: lazy results
Expect: slower, no-gain, failed@run, failed@output, shape
"""

import stock_network
import torch


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [arg.as_subclass(torch.Tensor) if isinstance(arg, Lazy) else arg for arg in args]
        if isinstance(args[0], Lazy) and function is torch.Tensor.detach:
            args[0].work()
        return function(*plain, **(kwargs or {}))


class Network(stock_network.Network):
    def forward(self, x, known):
        made = super().forward(x, known)
        forward = super().forward
        lazy = made["hidden"].as_subclass(Lazy)
        lazy.work = lambda: [forward(x, known) for _ in range(80)]
        return {**made, "hidden": lazy}
