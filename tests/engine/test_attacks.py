"""Candidates that attack what measures them: the controller's memory and clock, the pause, the wire, the person who reads."""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.tiny import LIMITS, in_step, stock, variant
from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed
from reforward.domain.spec import Segment
from reforward.engine import standstill
from reforward.engine.cpu import CpuEngine
from reforward.engine.handle import LmHandle
from reforward.engine.sandbox import SIGNALS

ONE = ([7], [Segment(slot=0, start=0, length=1)], [0], 0)
SOCKETS = (
    "import socket",
    "found = []",
    "for number in range(3, 64):",
    "    try: found.append(socket.socket(fileno=os.dup(number)))",
    "    except OSError: continue",
)


@pytest.fixture
def start(engine: CpuEngine) -> Iterator["Starter"]:
    """Workers that end with the test; afterwards the same server gives a working stock worker."""
    server = engine.server
    starter = Starter(engine)
    yield starter
    starter.close()
    assert engine.server is server
    worker = engine.start_lm(engine.prepare(stock()), depth=1, limits=LIMITS)
    assert len(worker.step(*ONE)) == 1
    worker.close()


class Starter:
    """Starts workers and remembers them."""

    def __init__(self, engine: CpuEngine) -> None:
        self.engine = engine
        self.workers: list[LmHandle] = []

    def __call__(self, candidate: Candidate) -> LmHandle:
        worker = self.engine.start_lm(self.engine.prepare(candidate), depth=1, limits=LIMITS)
        self.workers.append(worker)
        return worker

    def close(self) -> None:
        """End them all."""
        for worker in self.workers:
            worker.close()


def failure(worker: LmHandle) -> CandidateFailed:
    """Of one step."""
    with pytest.raises(CandidateFailed) as caught:
        worker.step(*ONE)
    return caught.value


def test_the_outbox_cannot_be_cut_off_under_the_reader(start: Starter) -> None:
    cut = in_step(
        "for number in range(3, 64):",
        "    try: os.ftruncate(number, 0); print('cut', number)",
        "    except OSError: continue",
    )
    worker = start(cut)
    worker.step(*ONE)
    assert "cut" not in worker.process.log_tail()
    assert len(worker.rows(0, 1).data) == 4096 * 4


def test_a_deep_chain_of_processes_is_no_trouble(start: Starter) -> None:
    chain = in_step("depth = 0", "while depth < 1200 and os.fork() == 0: depth += 1",
                    "if depth: time.sleep(60)", "time.sleep(1)")  # fmt: skip
    worker = start(chain)
    worker.step(*ONE)
    assert worker.memory().private > 0
    with suppress(CandidateFailed):
        worker.pause()
        worker.resume()
    begun = time.monotonic()
    worker.close()
    assert time.monotonic() - begun < 10


def test_closing_the_socket_is_named(start: Starter) -> None:
    assert failure(start(in_step("os.closerange(3, 64)", "time.sleep(60)"))).reason == (
        "closed its connection without answering"
    )


def test_an_answer_before_the_question_is_an_end(start: Starter) -> None:
    early = in_step(
        "from reforward.engine import wire",
        *SOCKETS,
        "for sock in found: wire.send(sock, wire.Tokens(steps=((1,),)))",
    )
    worker = start(early)
    worker.step(*ONE)
    assert select.select([worker.process.sock], [], [], 20)[0], "the true answer comes late"
    assert failure(worker).reason == "the worker speaks without being asked"


@pytest.mark.parametrize("length", [2_000, 2_000_000])
def test_what_a_worker_says_of_its_failure_is_kept_short(start: Starter, length: int) -> None:
    forged = in_step(
        "from reforward.engine import wire",
        *SOCKETS,
        f"for sock in found: wire.send(sock, wire.Failed(stage='run', reason='r' * {length}, log='l' * {length}))",
        "time.sleep(60)",
    )
    found = failure(start(forged))
    assert len(found.reason) <= 1000
    assert len(found.log) <= 4096


def test_no_control_characters_reach_the_terminal(start: Starter) -> None:
    painted = in_step(
        "print('\\x1b[2J\\x1b]52;c;AAAA\\x07 accepted\\r', flush=True)", "raise ValueError('\\x1b[31m\\x9b')"
    )
    found = failure(start(painted))
    assert not set("\x1b\x07\r\x9b") & set(found.reason + found.log)
    assert "accepted" in found.log


def test_a_reason_that_is_no_text_is_told(start: Starter) -> None:
    assert failure(start(in_step("raise ValueError('\\ud800 lost')"))).reason.startswith(
        "ValueError: \\ud800 lost (forward.py"
    )


RUNNER = """
import ctypes, threading
libc = ctypes.CDLL(None)
def spin(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until: pass
class Event(ctypes.Structure):
    _fields_ = [('value', ctypes.c_void_p), ('signo', ctypes.c_int), ('notify', ctypes.c_int), ('rest', ctypes.c_char * 48)]
def wake_by_timers():
    for index in range(1, 6):
        timer, event = ctypes.c_void_p(), Event(None, 18, 0, b'')
        assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
        once = (ctypes.c_long * 4)(0, 0, 0, index * 100_000_000)
        assert libc.timer_settime(timer, 0, ctypes.byref(once), None) == 0
    threading.Thread(target=spin, args=(60,), daemon=True).start()
def arm_many_timers():
    made = [libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) for _ in range(2000)]
    print(made.count(0), flush=True)
def first_thread_ends():
    threading.Thread(target=spin, args=(60,)).start()
    libc.syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)
def chain():
    if os.fork(): return
    os.setsid()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if os.fork(): os._exit(0)
"""


def running(start: Starter, trick: str) -> LmHandle:
    """A worker that has stepped once and left something running."""
    body = f"    def step(self, batch, logits):\n        super().step(batch, logits)\n        {trick}\n"
    worker = start(variant(body, top=RUNNER))
    worker.step(*ONE)
    return worker


def wait_until_it_ran(worker: LmHandle) -> None:
    """For 5 ms of processor time."""
    begun = sum(standstill.times(worker.process.pid).values())
    until = time.monotonic() + 20
    while sum(standstill.times(worker.process.pid).values()) < begun + 5_000_000 and time.monotonic() < until:
        time.sleep(0.02)


def test_a_timer_that_wakes_a_stopped_worker_is_found_out(start: Starter) -> None:
    worker = running(start, "wake_by_timers()")
    worker.pause()
    wait_until_it_ran(worker)
    with pytest.raises(CandidateFailed, match=r"used \d+ ms of processor while it was stopped"):
        worker.resume()


def test_what_ran_while_it_was_stopped_and_ended_is_found_out(start: Starter) -> None:
    worker = running(start, "os.fork() or (spin(60), os._exit(0))")
    worker.pause()
    child = next(pid for pid in standstill.family(worker.process.pid) if pid != worker.process.pid)
    os.kill(child, signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(CandidateFailed, match="ended while it was stopped"):
        worker.resume()


def test_threads_that_outlive_the_first_of_their_process_are_stopped(start: Starter) -> None:
    worker = running(start, "os.fork() or first_thread_ends()")
    time.sleep(0.3)
    worker.pause()
    before = standstill.times(worker.process.pid)
    assert len(before) == 2
    time.sleep(0.1)
    standstill.check(worker.process.pid, before)


def test_timers_that_cost_the_other_arm_are_few(start: Starter) -> None:
    assert int(running(start, "arm_many_timers()").process.log_tail()) <= SIGNALS


def test_what_ran_after_its_last_pass_is_found_out_with_its_memory(start: Starter) -> None:
    worker = running(start, "wake_by_timers()")
    worker.pause()
    wait_until_it_ran(worker)
    with pytest.raises(CandidateFailed, match="while it was stopped"):
        worker.memory()


def test_a_chain_of_forks_is_brought_to_a_stop_or_fails(start: Starter) -> None:
    worker = running(start, "chain()")
    with suppress(CandidateFailed):
        worker.pause()
        before = standstill.times(worker.process.pid)
        time.sleep(0.3)
        standstill.check(worker.process.pid, before)


def test_threads_and_children_that_work_between_questions_are_stopped_and_go_on(start: Starter) -> None:
    busy = "threading.Thread(target=spin, args=(60,), daemon=True).start(); os.fork() or (spin(60), os._exit(0))"
    worker = running(start, busy)
    for _ in range(5):
        worker.pause()
        before = standstill.times(worker.process.pid)
        time.sleep(0.1)
        standstill.check(worker.process.pid, before)
        worker.resume()
    worker.step(*ONE)
    with pytest.raises(standstill.Restless):
        standstill.check(worker.process.pid, before)


def test_a_pause_holds_from_the_moment_it_returns(start: Starter) -> None:
    worker = running(start, "threading.Thread(target=spin, args=(60,), daemon=True).start()")
    for _ in range(10):
        worker.pause()
        assert Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        worker.resume()
