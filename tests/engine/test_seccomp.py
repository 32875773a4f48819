"""What the filter of calls refuses, tried from inside a worker, and what honest code may still do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.tiny import LIMITS, in_step
from reforward.domain.errors import CandidateFailed
from reforward.domain.spec import Segment
from reforward.engine import seccomp
from reforward.engine.cpu import CpuEngine
from reforward.engine.sandbox import PROCESSES

COLUMN = seccomp.ARCHITECTURES[os.uname().machine][0]
HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h"))
HELP = (
    "import ctypes, errno, json, mmap, socket, subprocess, threading",
    "libc = ctypes.CDLL(None, use_errno=True)",
    "def call(number, *words):",
    "    answer = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(word) for word in words))",
    "    return errno.errorcode[ctypes.get_errno()] if answer < 0 else 'done'",
    "def made(family, kind):",
    "    try: socket.socket(family, kind).close(); return 'done'",
    "    except OSError as error: return errno.errorcode[error.errno]",
    "def paired(kind):",
    "    try: socket.socketpair(socket.AF_UNIX, kind); return 'done'",
    "    except OSError as error: return errno.errorcode[error.errno]",
)


def ask(engine: CpuEngine, *lines: str) -> str:
    """Run lines inside `step`; what they raise last is the answer."""
    if "seccomp" not in engine.target.launch.sandbox:
        pytest.skip("this machine grants no seccomp filter")
    worker = engine.start_lm(engine.prepare(in_step(*HELP, *lines)), depth=1, limits=LIMITS)
    with pytest.raises(CandidateFailed) as caught:
        worker.step([7], [Segment(slot=0, start=0, length=1)], [0], 0)
    return caught.value.reason.partition(": ")[2].partition(" (forward.py, line")[0]


def test_the_numbers_are_those_of_the_kernel_headers() -> None:
    if not all(header.is_file() for header in HEADERS):
        pytest.skip("needs linux-libc-dev on x86_64")
    for column, header in enumerate(HEADERS):
        known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
        for name, numbers in (seccomp.NUMBERS | seccomp.CHECKED).items():
            assert int(known[name]) == numbers[column], name


def test_refused_calls_are_refused(engine: CpuEngine) -> None:
    numbers = {name: numbers[COLUMN] for name, numbers in seccomp.NUMBERS.items()}
    answers = ask(engine, f"numbers = {numbers}",
                  "got = sorted({call(number, 0, 0, 0, 0, 0) for number in numbers.values()})",
                  "raise RuntimeError(got)")  # fmt: skip
    assert answers == "['EPERM']"


@pytest.mark.parametrize(
    ("attempt", "answer"),
    [
        ("made(socket.AF_INET, socket.SOCK_STREAM)", "EAFNOSUPPORT"),
        ("made(socket.AF_UNIX, socket.SOCK_STREAM)", "EAFNOSUPPORT"),
        ("made(socket.AF_NETLINK, socket.SOCK_RAW)", "EAFNOSUPPORT"),
        ("made(40, socket.SOCK_STREAM)", "EAFNOSUPPORT"),
        ("paired(socket.SOCK_DGRAM)", "EPERM"),
        ("paired(socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)", "EPERM"),
        ("paired(socket.SOCK_STREAM)", "done"),
        (f"call({seccomp.CHECKED['clone'][COLUMN]}, 0x10000000 | 17, 0, 0, 0, 0)", "EPERM"),
        (f"call({seccomp.CHECKED['clone3'][COLUMN]}, 0, 0)", "ENOSYS"),
        (f"call({seccomp.CHECKED['sched_setaffinity'][COLUMN]}, 0, 0, 0)", "EINVAL"),
        (f"call({seccomp.CHECKED['mbind'][COLUMN]}, 0, 0, 0, 0, 0, 2)", "EPERM"),
        (f"call({seccomp.CHECKED['mbind'][COLUMN]}, 0, 0, 0, 0, 0, 0)", "done"),
        ("libc.madvise(page, 4096, 4), libc.madvise(page, 4096, 20), libc.madvise(page, 4096, 21)", "(0, -1, -1)"),
    ],
)
def test_calls_that_depend_on_their_arguments(engine: CpuEngine, attempt: str, answer: str) -> None:
    area = "area = mmap.mmap(-1, 4096)"
    page = "page = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(area)))"
    assert ask(engine, area, page, f"raise RuntimeError({attempt})") == answer


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="a second call table exists on x86_64 only")
def test_the_second_call_table_is_closed(engine: CpuEngine) -> None:
    assert ask(engine, f"raise RuntimeError(call(0x40000000 + {seccomp.NUMBERS['ptrace'][0]}, 0, 0, 0))") == "ENOSYS"


def test_honest_code_still_runs_threads_programs_and_pins_itself(engine: CpuEngine) -> None:
    answer = ask(
        engine,
        "thread = threading.Thread(target=lambda: None); thread.start(); thread.join()",
        "said = subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout",
        "os.sched_setaffinity(0, os.sched_getaffinity(0))",
        "os.sched_setaffinity(threading.get_native_id(), os.sched_getaffinity(0))",
        "raise RuntimeError(said.strip())",
    )
    assert answer == "hi"


def test_without_a_pid_namespace_only_itself_may_be_pinned() -> None:
    machine = os.uname().machine
    number = seccomp.CHECKED["sched_setaffinity"][COLUMN]
    for others_in_sight in (True, False):
        operands = [step.operand for step in seccomp.program(machine, others_in_sight=others_in_sight, device=False)]
        assert (number in operands) == others_in_sight


def test_threads_and_processes_are_bounded_for_root_too(engine: CpuEngine) -> None:
    if "process bound" not in engine.target.launch.sandbox:
        pytest.skip("nothing bounds processes on this machine")
    answer = ask(
        engine,
        "threading.stack_size(65536)",
        "gate, count = threading.Event(), 0",
        "try:",
        f"    while count < {2 * PROCESSES}:",
        "        threading.Thread(target=gate.wait, daemon=True).start(); count += 1",
        "except RuntimeError: pass",
        "gate.set()",
        "raise RuntimeError(count)",
    )
    assert PROCESSES // 2 < int(answer) < PROCESSES


def test_the_bound_is_the_workers_own(engine: CpuEngine) -> None:
    assert int(Path("/proc/sys/kernel/pid_max").read_text()) != PROCESSES


def test_memory_that_ends_ends_the_worker_first(engine: CpuEngine) -> None:
    assert ask(engine, "raise RuntimeError(open('/proc/self/oom_score_adj').read().strip())") == "1000"


def test_scratch_has_a_quota_of_bytes_and_of_files(engine: CpuEngine) -> None:
    if "own scratch" not in engine.target.launch.sandbox:
        pytest.skip("this machine grants no mounts")
    answer = ask(
        engine,
        "def fill(act):",
        "    try:",
        "        for index in range(100_000): act(index)",
        "    except OSError as error: return errno.errorcode[error.errno]",
        "big = bytes(64 << 20)",
        "files = fill(lambda index: open(f'small{index}', 'w').close())",
        "for index in range(200): os.unlink(f'small{index}')",
        "data = fill(lambda index: open(f'big{index}', 'wb').write(big))",
        "raise RuntimeError(files, data)",
    )
    assert answer == "('ENOSPC', 'ENOSPC')"


def test_the_filter_jumps_only_forward_and_ends_in_a_decision() -> None:
    for machine in seccomp.ARCHITECTURES:
        for device in (False, True):
            steps = seccomp.program(machine, others_in_sight=True, device=device)
            assert steps[-1].code == 0x06
            for place, step in enumerate(steps):
                assert place + 1 + max(step.holds, step.fails) < len(steps) or step.code == 0x06
                assert max(step.holds, step.fails) < 256


def test_of_a_device_a_unix_socket_is_left_that_connects_to_nothing(tmp_path: Path) -> None:
    program = (
        "import errno, socket, sys\n"
        "from reforward.engine import seccomp, syscalls\n"
        "syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)\n"
        "seccomp.load_filter(others_in_sight=False, device=True)\n"
        "said = []\n"
        "def act(what, *arguments):\n"
        "    try: what(*arguments); said.append('ok')\n"
        "    except OSError as error: said.append(errno.errorcode[error.errno])\n"
        "act(socket.socket, socket.AF_UNIX, socket.SOCK_STREAM)\n"
        "act(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).bind('here'))\n"
        "act(socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "act(socket.socket, socket.AF_INET, socket.SOCK_STREAM)\n"
        "act(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect('here'))\n"
        "print(*said)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["ok", "ok", "EAFNOSUPPORT", "EAFNOSUPPORT", "EPERM"]
