"""What NVML knows of a device: its name, bytes in use, by whom. Makes no context on it.

Names and layouts: NVML API reference (https://docs.nvidia.com/deploy/nvml-api).
"""

import ctypes

from reforward.domain.errors import Unavailable
from reforward.engine.cuda.card import Card

_TEXT = 96
_MOST = 256
_UNKNOWN_BYTES = 2**64 - 1


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Monitor:
    """One device, looked at from outside."""

    def __init__(self, card: Card) -> None:
        try:
            self._library = ctypes.CDLL(card.monitor)
        except OSError as error:
            raise Unavailable(f"no NVIDIA driver: {error}; install it, or set device = cpu") from None
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(card.index), ctypes.byref(self._device))

    @property
    def name(self) -> str:
        """Product name."""
        return self._text("nvmlDeviceGetName", self._device)

    @property
    def driver(self) -> str:
        """Version of the driver."""
        return self._text("nvmlSystemGetDriverVersion")

    def used_bytes(self) -> int:
        """Of the device, by all processes."""
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(memory))
        return memory.used

    def process_bytes(self) -> dict[int, int]:
        """By process that computes; empty where the system hides processes from NVML, as some containers do."""
        count, listed = ctypes.c_uint(_MOST), (_Process * _MOST)()
        self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._device, ctypes.byref(count), listed)
        return {found.pid: found.used for found in listed[: count.value] if found.used != _UNKNOWN_BYTES}

    def _text(self, name: str, *arguments: object) -> str:
        buffer = ctypes.create_string_buffer(_TEXT)
        self._call(name, *arguments, buffer, ctypes.c_uint(_TEXT))
        return buffer.value.decode(errors="replace")

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise Unavailable(f"{name} failed with NVML code {code}; does `nvidia-smi` work here?")
