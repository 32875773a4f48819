"""The state of one slot as bytes, so that another worker whose forward keeps the same tensors can go on with it."""

# pyright: reportUnknownMemberType=false

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from reforward.runtime.forward import StateTensor


def layout(asked: Sequence[StateTensor]) -> str:
    """Equal for forwards that can take over each other's slots: hash of all names, shapes, types and layouts, in order."""
    words = "\n".join(f"{one.name} {tuple(one.shape)} {one.dtype} {one.layout}" for one in asked)
    return hashlib.blake2b(words.encode(errors="backslashreplace"), digest_size=16).hexdigest()


def save(state: Mapping[str, Tensor], slot: int, at: int, into: Tensor) -> None:
    """Copy bytes `at`, `at + 1`, ... of the slot into the uint8 tensor `into`, as many as it has."""
    for here, there in _parts(state, slot, at, into):
        there.copy_(here)


def restore(state: Mapping[str, Tensor], slot: int, at: int, data: Tensor) -> None:
    """Copy the uint8 tensor `data` over bytes `at`, `at + 1`, ... of the slot."""
    for here, there in _parts(state, slot, at, data):
        here.copy_(there)


def _parts(state: Mapping[str, Tensor], slot: int, at: int, buffer: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Pieces of the slot's bytes, which are those of its tensors one after the other, beside their places in the buffer."""
    end, first = at + len(buffer), 0
    for tensor in state.values():
        data = tensor[slot].view(-1).view(torch.uint8)
        low, high = max(at, first), min(end, first + len(data))
        if low < high:
            yield data[low - first : high - first], buffer[low - at : high - at]
        first += len(data)
    if end > first:
        raise ValueError(f"a slot holds {first:,} bytes, and byte {end:,} was asked for")
