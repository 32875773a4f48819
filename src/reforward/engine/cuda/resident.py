"""Weights of a device in a worker: memory that the holder exported, mapped read-only, as tensors by name."""

import ctypes
import os
from typing import Any, cast

import torch
from torch import Tensor

from reforward.engine.cuda.card import Card
from reforward.engine.cuda.driver import Driver
from reforward.engine.cuda.vault import DeviceVault
from reforward.engine.vault import Shelf
from reforward.engine.wire import Stored


class DeviceResident:
    """What a worker inherits. Nothing is mapped, and no context made, before the first `tensors()`."""

    def __init__(self, vault: DeviceVault, packed: str) -> None:
        self._card = vault.card
        self._weights, self._packed = vault.shelves["weights"], vault.shelves[packed] if packed else None
        self._weights_file, self._packed_file = vault.arenas["weights"], vault.arenas[packed] if packed else -1
        self._driver: Driver | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that must stay open until everything is mapped."""
        return (self._weights_file, self._packed_file)

    def tensors(self) -> dict[str, Tensor]:
        """Weights by name, read-only views. May be called once: the descriptor is closed afterwards."""
        return self._attach(self._weights, self._weights_file)

    def packs(self) -> dict[str, Tensor]:
        """Packed tensors by name, likewise."""
        return self._attach(self._packed, self._packed_file) if self._packed else {}

    def _attach(self, shelf: Shelf, descriptor: int) -> dict[str, Tensor]:
        self._driver = self._driver or Driver(self._card)
        size = self._driver.whole(max(t.offset + t.nbytes for t in shelf.tensors))
        address = self._driver.map(self._driver.adopt(descriptor), size, writable=False)
        os.close(descriptor)
        memory = at_address(address, size, self._card)
        return {tensor.name: view(tensor, memory) for tensor in shelf.tensors}


def view(tensor: Stored, memory: Tensor) -> Tensor:
    """One tensor over bytes of an arena. A store to it is a fault of the device."""
    part = memory[tensor.offset : tensor.offset + tensor.nbytes]
    return part.view(getattr(torch, tensor.dtype)).view(tensor.shape)


def at_address(address: int, nbytes: int, card: Card) -> Tensor:
    """Bytes at an address of the device (or of the host, for a driver that keeps its memory there), not owned."""
    if torch.device(card.place).type == "cpu":
        return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=torch.uint8)
    return torch.as_tensor(_Bytes(address, nbytes), device=card.place)


class _Bytes:
    """https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html"""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


def pin(rows: Tensor) -> None:
    """Lock shared host memory into place, so that the device writes to it directly."""
    runtime: Any = cast(Any, torch.cuda).cudart()
    code = int(runtime.cudaHostRegister(rows.data_ptr(), rows.nbytes, 0))
    if code != 0:
        raise OSError(f"cudaHostRegister of {rows.nbytes:,} bytes failed with {code}")
