"""Candidates that break a rule: each ends as a failure of its stage, alone, and the next worker starts at once."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.tiny import LIMITS, in_step, stock, variant
from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed
from reforward.domain.spec import Segment
from reforward.engine.cpu import CpuEngine

ONE = ([7], [Segment(slot=0, start=0, length=1)], [0], 0)
GARBAGE = (
    "import socket",
    "for number in range(3, 64):",
    "    try: ours = socket.socket(fileno=os.dup(number))",
    "    except OSError: continue",
)


@pytest.fixture(autouse=True)
def unharmed(engine: CpuEngine) -> Iterator[None]:
    """After each test the same server gives a working stock worker."""
    server = engine.server
    yield
    assert engine.server is server
    worker = engine.start_lm(engine.prepare(stock()), depth=1, limits=LIMITS)
    try:
        assert len(worker.step(*ONE)) == 1
    finally:
        worker.close()


def fail(engine: CpuEngine, candidate: Candidate, *, step_s: float = 20.0) -> CandidateFailed:
    """Load, step, and return the failure; the worker must be gone by then."""
    try:
        worker = engine.start_lm(engine.prepare(candidate), depth=1, limits=LIMITS)
    except CandidateFailed as failure:
        return failure
    worker.step_s = step_s
    with pytest.raises(CandidateFailed) as caught:
        worker.step(*ONE)
    with pytest.raises(ProcessLookupError):
        os.kill(worker.process.pid, 0)
    return caught.value


def test_raising(engine: CpuEngine) -> None:
    failure = fail(engine, in_step("print('before the end')", "raise KeyError('lost')"))
    assert failure.stage == "run"
    assert failure.reason == "KeyError: 'lost' (forward.py, line 8: raise KeyError('lost'))"
    assert failure.log.startswith("before the end\n"), "its log begins with its own words, no warning of ours"
    assert "in step" in failure.log


def test_raising_at_import(engine: CpuEngine) -> None:
    failure = fail(engine, variant("", top="raise RuntimeError('no')"))
    assert failure.stage == "load"
    assert "RuntimeError: no" in failure.reason


def test_raising_in_the_constructor(engine: CpuEngine) -> None:
    failure = fail(engine, variant("    def __init__(self, build):\n        1 / 0\n"))
    assert failure.stage == "load"
    assert re.fullmatch(r"ZeroDivisionError: division by zero \(forward.py, line \d+: 1 / 0\)", failure.reason)


@pytest.mark.parametrize(("how", "words"), [("os._exit(0)", "code 0"), ("sys.exit(3)", "SystemExit: 3")])
def test_leaving(engine: CpuEngine, how: str, words: str) -> None:
    failure = fail(engine, in_step(how))
    assert failure.stage == "run"
    assert words in failure.reason


def test_leaving_at_import(engine: CpuEngine) -> None:
    failure = fail(engine, variant("", top="os._exit(0)"))
    assert (failure.stage, failure.reason) == ("load", "exited with code 0 without answering")


def test_a_segmentation_fault(engine: CpuEngine) -> None:
    failure = fail(engine, in_step("import ctypes", "ctypes.string_at(8)"))
    assert (failure.stage, failure.reason) == ("run", "killed by signal 11 (SIGSEGV)")


@pytest.mark.parametrize("lines", [("while True: pass",), ("time.sleep(3600)",)])
def test_an_endless_step(engine: CpuEngine, lines: tuple[str, ...]) -> None:
    begun = time.monotonic()
    failure = fail(engine, in_step(*lines), step_s=0.5)
    assert (failure.stage, failure.reason) == ("run", "no answer within 0.5 s")
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    "hold",
    [
        "keep = bytearray(40 << 30)",
        "import torch; keep = torch.ones(40 << 30, dtype=torch.uint8)",
        "import mmap; keep = mmap.mmap(-1, 40 << 30)",
    ],
)
def test_forty_gigabytes(engine: CpuEngine, hold: str) -> None:
    failure = fail(engine, in_step(hold))
    assert failure.stage == "run"
    assert failure.reason.startswith("over its memory limit of 4.0 GiB")


def test_what_a_worker_started_dies_with_it(engine: CpuEngine) -> None:
    escape = in_step(
        "if os.fork() == 0:",
        "    os.setsid()",
        "    if os.fork() == 0:",
        "        os.execvp('sleep', ['sleep', '31536017'])",
        "    os._exit(0)",
        "time.sleep(0.5)",
    )
    worker = engine.start_lm(engine.prepare(escape), depth=1, limits=LIMITS)
    worker.step(*ONE)
    assert _running("31536017")
    worker.close()
    assert not _running("31536017")


def _running(word: str) -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in path.read_bytes().decode(errors="replace").split("\0"):
                found.append(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.parametrize(
    "data",
    ["(5).to_bytes(4, 'little') + b'hello'", "b'\\xff' * 64", "(3).to_bytes(4, 'little') + b'\\x81\\xa4t'"],
)
def test_talking_nonsense(engine: CpuEngine, data: str) -> None:
    failure = fail(engine, in_step(*GARBAGE, f"    ours.send({data})", "time.sleep(60)"))
    assert failure.stage == "run"
    assert "nonsense" in failure.reason


def test_a_wrong_answer_in_good_form(engine: CpuEngine) -> None:
    forged = in_step(
        "from reforward.engine import wire", *GARBAGE, "    wire.send(ours, wire.Built())", "time.sleep(60)"
    )
    assert "answered Built to Step" in fail(engine, forged).reason


def test_too_few_tokens(engine: CpuEngine) -> None:
    forged = in_step(
        "from reforward.engine import wire", *GARBAGE, "    wire.send(ours, wire.Tokens(steps=()))", "time.sleep(60)"
    )
    assert "tokens" in fail(engine, forged).reason


def test_a_trickle_does_not_move_the_deadline(engine: CpuEngine) -> None:
    begun = time.monotonic()
    trickle = in_step(*GARBAGE, "    ours.send((200).to_bytes(4, 'little'))",
                      "    while True: ours.send(b'x'); time.sleep(0.2)")  # fmt: skip
    assert "within" in fail(engine, trickle, step_s=1.0).reason
    assert time.monotonic() - begun < 15


def test_a_store_to_a_weight_faults(engine: CpuEngine) -> None:
    store = variant(
        "    def __init__(self, build):\n"
        "        super().__init__(build)\n"
        "        self.weight = build.weights['model.norm.weight']\n"
        "    def step(self, batch, logits):\n"
        "        self.weight.add_(1)\n"
    )
    failure = fail(engine, store)
    assert (failure.stage, failure.reason) == ("run", "killed by signal 11 (SIGSEGV)")


def test_no_writable_mapping_of_the_weights(engine: CpuEngine) -> None:
    attack = in_step(
        "import ctypes, mmap, re",
        "libc = ctypes.CDLL(None, use_errno=True)",
        "lines = [l.split() for l in open('/proc/self/maps') if l.split()[-1].endswith('/weights/data')]",
        "assert lines",
        "begin, end = (int(part, 16) for part in lines[0][0].split('-'))",
        "changed = libc.mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), 3)",
        "reason = [f'mprotect {changed}']",
        "for path in (lines[0][-1], f'/proc/self/map_files/{lines[0][0]}'):",
        "    try: os.open(path, os.O_RDWR); reason.append('opened')",
        "    except OSError as error: reason.append(type(error).__name__)",
        "raise RuntimeError(' '.join(reason))",
    )
    reason = fail(engine, attack).reason
    assert reason.startswith("RuntimeError: mprotect -1")
    assert "opened" not in reason


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (("open('/etc/reforward-was-here', 'w')",), ("PermissionError", "OSError")),
        (("import socket", "socket.create_connection(('127.0.0.1', 1), timeout=2)"), ("OSError", "ConnectionRefused")),
        (("import pathlib", "list(pathlib.Path('/root').iterdir())"), ("PermissionError",)),
        (("os.kill(os.getppid() or 1 << 22, 9)",), ("ProcessLookupError", "PermissionError")),
    ],
)
def test_out_of_bounds(engine: CpuEngine, lines: tuple[str, ...], error: tuple[str, ...]) -> None:
    if not _confined(engine):
        pytest.skip("this machine grants no namespaces or no Landlock")
    assert fail(engine, in_step(*lines)).reason.startswith(error)


def _confined(engine: CpuEngine) -> bool:
    return {"landlock", "pid namespace", "net namespace"} <= set(engine.target.launch.sandbox)


def test_only_its_own_processes_are_visible(engine: CpuEngine) -> None:
    if not _confined(engine):
        pytest.skip("this machine grants no namespaces or no Landlock")
    look = in_step("raise RuntimeError(sorted(name for name in os.listdir('/proc') if name.isdigit()))")
    assert fail(engine, look).reason.startswith("RuntimeError: ['1'] (forward.py, line")


def test_scratch_is_its_own_and_leaves_nothing(engine: CpuEngine) -> None:
    leave = in_step("import tempfile", "p = tempfile.mkdtemp()", "open(p + '/residue', 'w').write('x')",
                    "raise RuntimeError(p)")  # fmt: skip
    folder = Path(fail(engine, leave).reason.removeprefix("RuntimeError: "))
    assert not folder.exists()
    look = in_step("raise RuntimeError(sorted(os.listdir('.')))")
    assert "residue" not in fail(engine, look).reason


def test_the_environment_is_scrubbed(engine: CpuEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_OPERATOR", "1")
    assert "SECRET" not in fail(engine, in_step("raise RuntimeError(sorted(os.environ))")).reason


def test_endless_output_is_bounded(engine: CpuEngine) -> None:
    failure = fail(engine, in_step("while True: os.write(1, b'x' * (1 << 20))"))
    assert "File too large" in failure.reason
    assert len(failure.log) <= 4096
