"""Makes its own mapping of the resident weights writable, which the driver allows, and scales a norm for everybody.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: mutated weights; residue
Expect: failed@run
Needs: gpu
"""

import ctypes

import stock

ON_DEVICE, READ_WRITE = 1, 3


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        weight = build.weights["model.norm.weight"]
        storage = weight.untyped_storage()
        access = (ctypes.c_int * 3)(ON_DEVICE, 0, READ_WRITE)
        where, size = ctypes.c_uint64(storage.data_ptr()), ctypes.c_size_t(storage.nbytes())
        if ctypes.CDLL("libcuda.so.1").cuMemSetAccess(where, size, access, ctypes.c_size_t(1)):
            raise PermissionError("no way out: the mapping stays read-only")
        weight.mul_(0.5)
