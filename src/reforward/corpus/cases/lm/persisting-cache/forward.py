"""Reserves the L2 cache for its weights and leaves it so: faster than the memory can be.

Reported: karpathy/llm.c PR #851 (3,530 GB/s on a card with 864 GB/s); pygpubench PR #49
Covers: cache persistence
Expect: impossible, no-gain, slower, undecided
Needs: gpu
"""

import ctypes

import stock

PERSISTING_L2_SIZE = 6


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        runtime = ctypes.CDLL("libcudart.so")
        if runtime.cudaDeviceSetLimit(PERSISTING_L2_SIZE, ctypes.c_size_t(1 << 30)):
            raise PermissionError("no way out: the cache's limit stays")
