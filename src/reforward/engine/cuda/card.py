"""Which device, as every process of an engine must be told: plain strings, so that it travels in a message."""

from dataclasses import dataclass

NODES = (
    "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia4", "/dev/nvidia5", "/dev/nvidia6",
    "/dev/nvidia7", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset",
)  # fmt: skip
"""Files through which a process talks to the driver."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """One device."""

    index: int = 0
    place: str = "cuda:0"
    """The device as torch names it."""
    driver: str = "libcuda.so.1"
    """Library with the driver's interface."""
    monitor: str = "libnvidia-ml.so.1"
    """Library with NVML's interface."""
