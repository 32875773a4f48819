"""Reserves the L2 cache for its weights and leaves it so: faster than the memory can be.

Reported: karpathy/llm.c PR #851 (3,530 GB/s on a card with 864 GB/s); pygpubench PR #49
Covers: cache persistence
Expect: impossible, no-gain, slower, undecided
Needs: gpu
"""

import ctypes

import stock
import torch

PERSISTING_L2_SIZE, ACCESS_POLICY_WINDOW, PERSISTING = 6, 1, 2


class Window(ctypes.Structure):
    _fields_ = (("at", ctypes.c_uint64), ("bytes", ctypes.c_size_t), ("share", ctypes.c_float), ("hit", ctypes.c_int),
                ("miss", ctypes.c_int), ("rest", ctypes.c_ubyte * 32))


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        driver, weight = ctypes.CDLL("libcuda.so.1"), build.weights["model.embed_tokens.weight"]
        storage = weight.untyped_storage()
        window = Window(storage.data_ptr(), min(storage.nbytes(), 1 << 25), 1.0, PERSISTING, 0)
        self.stream = torch.cuda.Stream()
        refused = driver.cuCtxSetLimit(PERSISTING_L2_SIZE, ctypes.c_size_t(1 << 25))
        stream = ctypes.c_void_p(self.stream.cuda_stream)
        refused = refused or driver.cuStreamSetAttribute(stream, ACCESS_POLICY_WINDOW, ctypes.byref(window))
        if refused:
            raise PermissionError("no way out: the cache cannot be reserved")

    def step(self, batch, logits):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            super().step(batch, logits)
        torch.cuda.current_stream().wait_stream(self.stream)
