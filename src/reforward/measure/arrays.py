"""`Tensor` (bytes that crossed a process boundary) to numpy and back."""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from reforward.domain.measurement import Output, Tensor
from reforward.domain.record import HASH_BYTES


def rows_of(tensor: Tensor) -> NDArray[np.float32]:
    """Logits rows `[n, vocab]`, a view of the tensor's bytes."""
    return np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)


def tensor_of(rows: NDArray[np.float32]) -> Tensor:
    """Rows as an fp32 tensor with bytes of its own."""
    return Tensor(dtype="float32", shape=rows.shape, data=np.ascontiguousarray(rows).tobytes())


def outputs_hash(outputs: Iterable[Output]) -> str:
    """Content hash over names, tokens, positions, types, shapes and bytes, in order."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for output in outputs:
        digest.update(f"{output.name}\0{output.tokens}{output.positions}".encode())
        for tensor in (output.candidate, output.stock, output.oracle):
            if tensor is not None:
                digest.update(f"{tensor.dtype}{tensor.shape}".encode())
                digest.update(tensor.data)
    return digest.hexdigest()
