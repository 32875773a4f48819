"""Who else used the processors."""

import os
import subprocess
import sys
import time

from reforward.engine.neighbours import Meter, cores

SPIN = [sys.executable, "-c", "while True: pass"]


def spun(count: int) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen(SPIN) for _ in range(count)]


def test_others_that_leave_no_processor_are_seen() -> None:
    worker = subprocess.Popen(["sleep", "60"])
    others = spun(len(os.sched_getaffinity(0)))
    try:
        meter = Meter(worker.pid, threads=2)
        time.sleep(1.0)
        assert meter.crowded() > 0.4
    finally:
        for process in (worker, *others):
            process.kill()
            process.wait()


def test_what_a_worker_and_its_children_use_is_its_own() -> None:
    worker = subprocess.Popen(["sh", "-c", f"{sys.executable} -c 'while True: pass' & wait"])
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        time.sleep(0.3)
        alone = Meter(worker.pid, threads=2)
        as_another = Meter(bystander.pid, threads=2)
        time.sleep(1.0)
        if cores() <= 2:
            assert as_another.crowded() > alone.crowded() + 0.2
        assert as_another.crowded() >= alone.crowded()
    finally:
        subprocess.run(["pkill", "-P", str(worker.pid)], check=False)
        for process in (worker, bystander):
            process.kill()
            process.wait()
