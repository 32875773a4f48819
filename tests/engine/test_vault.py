"""Sealed files of tensors, with and without a mount namespace."""

import errno
import fcntl
import mmap
import os
from pathlib import Path

import pytest

from engine.tiny import SPEC
from reforward.engine.vault import ALIGN, WEIGHTS, Vault, extent, place
from reforward.engine.wire import Stored
from reforward.models.checkpoint import read_header


def stored(file: Path) -> tuple[Stored, ...]:
    return tuple(
        Stored(name=e.name, dtype=e.dtype, shape=e.shape, offset=e.offset, nbytes=e.nbytes, file=str(e.file))
        for e in read_header(file)
    )


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """Without a mount namespace, as on a machine that refuses one."""
    return Vault(tmp_path, private=False)


def test_bytes_lie_aligned_and_unchanged(vault: Vault, checkpoint: Path) -> None:
    sources = stored(checkpoint)
    shelf = vault.load(sources)
    mapping = shelf.map()
    assert mapping is not None
    raw = checkpoint.read_bytes()
    assert len(shelf.tensors) == 2 + 1 + 9 * SPEC.layers
    for source, goal in zip(sources, shelf.tensors, strict=True):
        assert goal.offset % ALIGN == 0
        assert mapping[goal.offset : goal.offset + goal.nbytes] == raw[source.offset : source.offset + source.nbytes]
    vault.close()


def test_a_sealed_memory_file_cannot_be_written(vault: Vault, checkpoint: Path) -> None:
    vault.load(stored(checkpoint))
    handle = vault.memory_files[WEIGHTS]
    with pytest.raises(OSError) as caught:
        os.pwrite(handle, b"x", 0)
    assert caught.value.errno == errno.EPERM
    with pytest.raises(PermissionError):
        mmap.mmap(handle, 0, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        os.ftruncate(handle, 0)
    again = os.open(f"/proc/self/fd/{handle}", os.O_RDWR)
    with pytest.raises(PermissionError):
        os.pwrite(again, b"x", 0)
    with pytest.raises(PermissionError):
        fcntl.fcntl(again, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    os.close(again)
    vault.close()


def test_a_file_that_is_still_mapped_for_writing_is_not_sealed(vault: Vault) -> None:
    path = vault.writable("key", 4096)
    handle = os.open(path, os.O_RDWR)
    os.ftruncate(handle, 4096)
    with mmap.mmap(handle, 4096), pytest.raises(OSError) as caught:
        vault.seal("key", ())
    assert caught.value.errno == errno.EBUSY
    os.close(handle)


@pytest.mark.parametrize(("offset", "nbytes"), [(-64, 4), (1, 4), (0, 8192), (4096, 4), (0, -4)])
def test_a_tensor_outside_its_file_is_refused(vault: Vault, offset: int, nbytes: int) -> None:
    path = vault.writable("key", 4096)
    os.truncate(path, 4096)
    with pytest.raises(ValueError, match="outside its file"):
        vault.seal("key", (Stored(name="x", dtype="float32", shape=(1,), offset=offset, nbytes=nbytes),))


def test_a_source_that_ends_early_is_named(vault: Vault, checkpoint: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(checkpoint.read_bytes()[:-4096])
    sources = tuple(
        Stored(name=t.name, dtype=t.dtype, shape=t.shape, offset=t.offset, nbytes=t.nbytes, file=str(short))
        for t in stored(checkpoint)
    )
    with pytest.raises(ValueError, match="ended inside"):
        vault.load(sources)


def test_placement_leaves_no_overlap() -> None:
    sizes = (4, 64, 65, 0, 1000)
    placed = place(Stored(name=str(n), dtype="float32", shape=(n,), offset=7, nbytes=n) for n in sizes)
    ends = [tensor.offset + tensor.nbytes for tensor in placed]
    assert all(end <= tensor.offset for end, tensor in zip(ends, placed[1:], strict=False))
    assert extent(placed) >= ends[-1]
