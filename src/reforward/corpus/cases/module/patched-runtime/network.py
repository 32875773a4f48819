"""Replaces the runtime's own way of reading tensors, so that the first answer goes out every time.

Reported: pygpubench (the harness is patched from inside); SOL-ExecBench's integrity snapshot
Covers: patched timers and torch; edited evaluator
Expect: numerics, shape, non-finite
"""

import stock_network

from reforward.engine import worker

read, seen = worker.to_data, {}


def stale(tensor):
    return seen.setdefault((tensor.dtype, tensor.ndim), read(tensor))


worker.to_data = stale


class Network(stock_network.Network):
    """The patch above is all that differs."""
