"""Between server and worker: a process that makes the namespaces, forks the worker as their first process, and waits for it.

The worker is pid 1 of its own pid namespace: when it ends, the kernel kills everything it started, whatever session or group
that moved to. If the server or the client dies, the chain of parent-death signals ends all.
"""

import ctypes
import os
import signal
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from reforward.engine import sandbox, wire
from reforward.engine.cuda.card import NODES
from reforward.engine.syscalls import PR_SET_PDEATHSIG, prctl
from reforward.engine.vault import Vault

_EXIT_LOST = 90


def keep(
    message: wire.Spawn, opened: wire.Open, vault: Vault, scratch: Path, pack_file: Path | None, descriptors: list[int]
) -> NoReturn:
    """In the forked keeper. Writes `<pid>\\n` and later `<wait status>\\n` to the status pipe."""
    status = descriptors[2]
    try:
        os.dup2(descriptors[1], 1)
        os.dup2(descriptors[1], 2)
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        sandbox.leave_namespaces()
        worker = os.fork()
        if worker == 0:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            _become_worker(message, opened, vault, scratch, pack_file, descriptors)
        os.write(status, f"{worker}\n".encode())
        for descriptor in descriptors:
            if descriptor != status:
                os.close(descriptor)
        _, code = os.waitpid(worker, 0)
        os.write(status, f"{code}\n".encode())
        os._exit(0)
    except BaseException:  # noqa: BLE001 - process boundary: the client reads it from the log
        traceback.print_exc()
    finally:
        os._exit(_EXIT_LOST)


def _become_worker(
    message: wire.Spawn, opened: wire.Open, vault: Vault, scratch: Path, pack_file: Path | None, descriptors: list[int]
) -> NoReturn:
    try:
        from reforward.engine.worker import resident_of, work

        os.setsid()
        pack_descriptor = os.open(pack_file, os.O_RDWR) if pack_file else -1
        resident = resident_of(vault, message.packed)
        sandbox.confine(
            scratch,
            memory_bytes=message.memory_bytes,
            file_bytes=message.memory_bytes if pack_file else sandbox.FILE_BYTES,
            readable=[folder for folder in (*opened.readable, message.readable) if folder],
            writable=[
                *([message.writable] if message.writable else []),
                *((sandbox.THREADS, *NODES) if opened.card else ()),
            ],
            device=opened.card is not None,
        )
        os.chdir(scratch)
        _only_keep({0, 1, 2, descriptors[0], *descriptors[3:], pack_descriptor, *resident.descriptors})
        work(descriptors[0], descriptors[3] if len(descriptors) > 3 else -1, pack_descriptor, resident, scratch)
    except BaseException:  # noqa: BLE001 - process boundary: the client reads it from the log
        traceback.print_exc()
    finally:
        ctypes.CDLL(None).fflush(None)
        os._exit(_EXIT_LOST)


def _only_keep(kept: set[int]) -> None:
    """Close every other descriptor."""
    highest = max((int(path.name) for path in Path("/proc/self/fd").iterdir()), default=0)
    for descriptor in range(highest + 1):
        if descriptor not in kept:
            with suppress(OSError):
                os.close(descriptor)


def probe(scratch: Path, *, private: bool) -> tuple[str, ...]:
    """What a worker would be granted, found out in a child that ends at once."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            granted = sandbox.leave_namespaces()
            inner = os.fork()
            if inner == 0:
                granted += sandbox.confine(
                    scratch, memory_bytes=8 << 30, file_bytes=sandbox.FILE_BYTES, readable=[], writable=[]
                )
                os.write(writer, "\n".join(granted).encode())
                os._exit(0)
            os.waitpid(inner, 0)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as pipe:
        granted = tuple(pipe.read().split("\n"))
    return ("read-only weights", *granted) if private else granted
