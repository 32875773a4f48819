"""The CUDA driver's virtual-memory calls through ctypes: a process that only holds memory needs neither torch nor its context.

Names and flags: CUDA Driver API, "Virtual Memory Management" (https://docs.nvidia.com/cuda/cuda-driver-api). A call that
fails raises `DriverError`, an `OSError`, with the driver's own name for the reason.
"""

import ctypes

from reforward.engine.cuda.card import Card

_PINNED, _POSIX_DESCRIPTOR, _ON_DEVICE = 1, 1, 1
_READ, _READ_WRITE = 1, 3
_POINTER = ctypes.c_uint64
"""Device addresses and handles."""


class DriverError(OSError):
    """The driver refused a call."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("requested_handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows_metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class Driver:
    """One device's primary context in this process, which is the one that torch uses too."""

    def __init__(self, card: Card) -> None:
        try:
            self._library = ctypes.CDLL(card.driver)
        except OSError as error:
            raise DriverError(f"the CUDA driver cannot be loaded: {error}; is an NVIDIA driver installed?") from None
        self._index = card.index
        self._device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(self._device), card.index)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        """One driver call by name. Device addresses are passed as `c_uint64`, sizes as `c_size_t`."""
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise DriverError(f"{name} failed: {self._name(code)} ({code})")

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(text))
        return (text.value or b"unknown error").decode()

    def attribute(self, number: int) -> int:
        """An integer property of the device, by its number in `CUdevice_attribute`."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def whole(self, nbytes: int) -> int:
        """`nbytes` rounded up to what the device allocates."""
        unit = ctypes.c_size_t()
        self.call("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(self._properties()), 0)
        return max(1, -(-nbytes // unit.value)) * unit.value

    def kernel(self, text: bytes, name: bytes) -> ctypes.c_void_p:
        """A function of PTX source, compiled for this device by the driver."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), text)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name)
        return function

    def launch(self, kernel: ctypes.c_void_p, blocks: int, threads: int, *words: int) -> None:
        """Start a kernel whose parameters are 8-byte words; it may not have begun when this returns."""
        values = [ctypes.c_uint64(word) for word in words]
        arguments = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        nothing = ctypes.c_void_p()
        self.call("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, nothing, arguments, nothing)

    def allocate(self, nbytes: int) -> int:
        """Address of new device memory of this process alone."""
        address = _POINTER()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def free(self, address: int) -> None:
        """Give back what `allocate` gave."""
        self.call("cuMemFree_v2", _POINTER(address))

    def create(self, nbytes: int) -> int:
        """Handle of new device memory that can be exported."""
        handle = _POINTER()
        wanted = ctypes.byref(self._properties())
        self.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(nbytes), wanted, ctypes.c_ulonglong(0))
        return handle.value

    def export(self, handle: int) -> int:
        """A file descriptor of the memory, for other processes; the caller closes it."""
        descriptor = ctypes.c_int(-1)
        self.call(
            "cuMemExportToShareableHandle", ctypes.byref(descriptor), _POINTER(handle), _POSIX_DESCRIPTOR,
            ctypes.c_ulonglong(0),
        )  # fmt: skip
        return descriptor.value

    def adopt(self, descriptor: int) -> int:
        """Handle of memory that another process exported."""
        handle = _POINTER()
        source = ctypes.c_void_p(descriptor)
        self.call("cuMemImportFromShareableHandle", ctypes.byref(handle), source, _POSIX_DESCRIPTOR)
        return handle.value

    def map(self, handle: int, nbytes: int, *, writable: bool) -> int:
        """Address of the memory in this process. The handle is given up: the mapping alone keeps the memory."""
        address, size = _POINTER(), ctypes.c_size_t(nbytes)
        nothing = ctypes.c_ulonglong(0)
        self.call("cuMemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(0), _POINTER(0), nothing)
        self.call("cuMemMap", address, size, ctypes.c_size_t(0), _POINTER(handle), nothing)
        access = _Access(self._location(), _READ_WRITE if writable else _READ)
        self.call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
        self.call("cuMemRelease", _POINTER(handle))
        return address.value

    def unmap(self, address: int, nbytes: int) -> None:
        """End a mapping; memory that nobody maps or holds a descriptor of is freed."""
        self.call("cuMemUnmap", _POINTER(address), ctypes.c_size_t(nbytes))
        self.call("cuMemAddressFree", _POINTER(address), ctypes.c_size_t(nbytes))

    def upload(self, address: int, source: memoryview) -> None:
        """Copy host bytes to the device; `source` must be writable memory, which it is not written to."""
        if len(source):
            first = ctypes.c_char.from_buffer(source)
            self.call("cuMemcpyHtoD_v2", _POINTER(address), ctypes.byref(first), ctypes.c_size_t(len(source)))

    def download(self, target: bytearray, address: int) -> None:
        """Copy device bytes to the host."""
        first = ctypes.c_char.from_buffer(target)
        self.call("cuMemcpyDtoH_v2", ctypes.byref(first), _POINTER(address), ctypes.c_size_t(len(target)))

    def _location(self) -> _Location:
        return _Location(_ON_DEVICE, self._index)

    def _properties(self) -> _Properties:
        return _Properties(_PINNED, _POSIX_DESCRIPTOR, self._location(), None, (ctypes.c_ubyte * 8)())
