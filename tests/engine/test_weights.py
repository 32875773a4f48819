"""Every way to write to the resident weights that we know of, tried by a candidate; and the same bits before and after."""

import pytest

from engine.tiny import LIMITS, in_step, stock
from reforward.domain.errors import CandidateFailed
from reforward.domain.spec import Segment
from reforward.engine.cpu import CpuEngine

TEXT = ([5, 9, 2, 7], [Segment(slot=0, start=0, length=4)], [0, 1, 2, 3], 0)
HELP = (
    "import ctypes, errno, mmap, threading",
    "libc = ctypes.CDLL(None, use_errno=True)",
    "libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p",
    "line = next(line for line in open('/proc/self/maps') if line.rstrip().endswith('/weights/data'))",
    "span, rights, _, _, _, path = line.split()",
    "begin, end = (int(part, 16) for part in span.split('-'))",
    "at, size = ctypes.c_void_p(begin), ctypes.c_size_t(end - begin)",
    "def answer(value): return 'done' if value not in (-1, 2**64 - 1) else errno.errorcode[ctypes.get_errno()]",
    "def opened(name, flags):",
    "    try: os.close(os.open(name, flags)); return 'done'",
    "    except OSError as error: return errno.errorcode[error.errno]",
    "def written(name):",
    "    try: handle = os.open(name, os.O_RDWR)",
    "    except OSError as error: return errno.errorcode[error.errno]",
    "    try: os.pwrite(handle, b'x' * 64, begin); return 'done'",
    "    except OSError as error: return errno.errorcode[error.errno]",
    "def filled(fill):",
    "    reader, writer = os.pipe(); os.write(writer, b'x' * 64)",
    "    return answer(fill(reader))",
)
ATTEMPTS = {
    "mprotect": "answer(libc.mprotect(at, size, 3))",
    "mprotect, executable": "answer(libc.mprotect(at, size, 7))",
    "the process's own memory file": "written('/proc/self/mem')",
    "the memory file of its thread": "written(f'/proc/self/task/{threading.get_native_id()}/mem')",
    "the mapped file": "opened(f'/proc/self/map_files/{span}', os.O_RDWR)",
    "the path": "opened(path, os.O_RDWR)",
    "the path, seen from the root of the process": "opened('/proc/1/root' + path, os.O_RDWR)",
    "the path, cut off": "opened(path, os.O_WRONLY | os.O_TRUNC)",
    "a read into it": "filled(lambda reader: libc.read(reader, at, ctypes.c_size_t(64)))",
    "a hole": "answer(libc.madvise(at, size, 9))",
    "pages pushed out": "answer(libc.madvise(at, size, 21))",
    "pages marked as poisoned": "answer(libc.madvise(at, size, 100))",
    "its file mounted again for writing": "answer(libc.mount(b'none', os.path.dirname(path).encode(), b'none', 32, None))",
    "its mount taken away": "answer(libc.umount2(os.path.dirname(path).encode(), 2))",
}
"""How, and the expression that does it; its value is `done` or the name of the error."""
HARMLESS = {
    "a private copy in its place": "answer(libc.mmap(at, size, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10, -1, 0))",
    "a larger mapping": "answer(libc.mremap(at, size, ctypes.c_size_t((end - begin) * 2), 1))",
    "pages forgotten by this process": "answer(libc.madvise(at, size, 4))",
}
"""What changes the worker's own view alone, or nothing."""


def logits(engine: CpuEngine) -> bytes:
    """Of the stock forward, in a fresh worker."""
    worker = engine.start_lm(engine.prepare(stock()), depth=1, limits=LIMITS)
    try:
        worker.step(*TEXT)
        return bytes(worker.rows(0, 4).data)
    finally:
        worker.close()


def attempt(engine: CpuEngine, expression: str) -> str:
    """What a candidate gets that tries it inside `step`."""
    attack = in_step(*HELP, f"raise RuntimeError('got', {expression})")
    worker = engine.start_lm(engine.prepare(attack), depth=1, limits=LIMITS)
    with pytest.raises(CandidateFailed) as caught:
        worker.step(*TEXT)
    return caught.value.reason


@pytest.fixture
def private(engine: CpuEngine) -> CpuEngine:
    """With weights on a mount of their own."""
    if "read-only weights" not in engine.target.launch.sandbox:
        pytest.skip("this machine grants no mounts; tests/engine/test_vault.py tries the sealed memory file")
    return engine


@pytest.mark.parametrize("how", ATTEMPTS)
def test_nobody_writes_to_the_weights(private: CpuEngine, how: str) -> None:
    before = logits(private)
    reason = attempt(private, ATTEMPTS[how])
    assert reason.startswith("RuntimeError: ('got', 'E"), reason
    assert logits(private) == before


@pytest.mark.parametrize("how", HARMLESS)
def test_what_a_worker_does_to_its_own_view_stays_there(private: CpuEngine, how: str) -> None:
    before = logits(private)
    attempt(private, HARMLESS[how])
    assert logits(private) == before


def test_no_descriptor_of_the_weights_is_left_to_the_worker(private: CpuEngine) -> None:
    listed = attempt(
        private, "sorted(os.readlink(f'/proc/self/fd/{name}') for name in os.listdir('/proc/self/fd')[:-1])"
    )
    assert "weights" not in listed
