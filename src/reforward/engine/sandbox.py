"""What confines a worker, applied in the forked child: namespaces, own /proc and scratch, limits, Landlock, no privileges, seccomp.

Each protection that the machine refuses is left out and not listed; `doctor` and every measurement's launch say which are
active. Landlock: https://docs.kernel.org/userspace-api/landlock.html.
"""

import ctypes
import os
import re
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from reforward.engine import seccomp, syscalls
from reforward.engine.syscalls import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER

SCRATCH_BYTES, SCRATCH_FILES = 512 << 20, 1 << 14
FILE_BYTES = 128 << 20
OPEN_FILES = 256
PROCESSES = 2048
"""Threads included, in all that one worker starts."""
SIGNALS = 64
"""Signals that wait for one worker, and with them timers of the kernel: each of those costs time even while its owner is
stopped, which nobody is charged for but whoever runs then. So this bounds what an idle arm can take from the other.
"""
CPU_S = 24 * 3600
"""Processor time of one process."""
ETC = (
    "alternatives", "group", "host.conf", "hostname", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "mime.types", "nsswitch.conf", "os-release", "passwd", "resolv.conf", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
"""What the loader, compilers and libraries look up; the rest of `/etc` holds secrets that root may read."""
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/proc", "/sys", *(f"/etc/{name}" for name in ETC))
LISTED = ("/dev",)
"""Folders whose names may be read, and no more: a disk is a file there, too, with everything that is on it."""
OWN = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")
"""What every worker may write."""
THREADS = "/proc/self/task"
"""Where threads are named, which the CUDA driver insists on; whoever may write there can also make the kernel forget a peak of
memory, so a worker without a device may not."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_LIST = 1 << 3
_READ = (1 << 0) | (1 << 2) | _LIST
"""Execute, read file, read folder."""
_RIGHTS_BY_ABI = ((1, 13), (2, 14), (3, 15), (5, 16))
"""(ABI, number of file-system rights that it knows)."""
_FILE_RIGHTS = _READ & ~_LIST | (1 << 1) | (1 << 14) | (1 << 15)
"""What applies to a file that is no folder: execute, read, write, truncate, control of a device."""
_SCOPES = 0b11
"""Abstract unix sockets and signals stay inside (ABI 6)."""


def own_mounts() -> bool:
    """Give this process its own mount namespace (and user namespace, unless root); False if the machine refuses."""
    try:
        if os.geteuid() != 0:
            _become_root_of_own_namespace(CLONE_NEWUSER | CLONE_NEWNS)
        else:
            syscalls.unshare(CLONE_NEWNS)
        syscalls.mount("none", "/", "none", syscalls.MS_REC | syscalls.MS_PRIVATE)
    except OSError:
        return False
    return True


def _become_root_of_own_namespace(flags: int) -> None:
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(flags)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def leave_namespaces() -> tuple[str, ...]:
    """In the keeper: children get their own processes, mounts, network and IPC. Returns what was granted."""
    granted: list[str] = []
    for name, flag in (("pid", CLONE_NEWPID), ("mount", CLONE_NEWNS), ("net", CLONE_NEWNET), ("ipc", CLONE_NEWIPC)):
        with suppress(OSError):
            syscalls.unshare(flag)
            granted.append(f"{name} namespace")
    return tuple(granted)


def confine(
    scratch: Path,
    *,
    memory_bytes: int,
    file_bytes: int,
    readable: Sequence[str],
    writable: Sequence[str],
    device: bool = False,
) -> tuple[str, ...]:
    """In the worker, before any candidate code: everything else. Returns what was granted. `device`: it uses one's driver."""
    alone = os.getpid() == 1
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("own /proc", lambda: syscalls.mount("proc", "/proc", "proc", _quiet())),
        ("own scratch", lambda: _mount_scratch(scratch)),
        ("process bound", lambda: bound_processes(alone=alone)),
        ("limits", lambda: limit(memory_bytes, file_bytes)),
        ("first out of memory", lambda: _write("/proc/self/oom_score_adj", 1000)),
        ("no new privileges", lambda: syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)),
        ("landlock", lambda: landlock([*SYSTEM, *python_folders(), *readable], [str(scratch), *OWN, *writable])),
        ("no capabilities", syscalls.drop_capabilities),
        ("seccomp", lambda: seccomp.load_filter(others_in_sight=not alone, device=device)),
    )
    granted: list[str] = []
    for name, apply in steps:
        with suppress(OSError):
            apply()
            granted.append(name)
    return tuple(granted)


def _quiet() -> int:
    return syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC


def _mount_scratch(scratch: Path) -> None:
    for place in (str(scratch), "/dev/shm"):
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        quota = f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode=700"
        syscalls.mount("scratch", place, "tmpfs", flags, quota)


def bound_processes(*, alone: bool) -> None:
    """At most `PROCESSES` in all; `OSError` where nothing bounds them.

    A pid namespace has a `pid_max` of its own since Linux 6.14 (before, the file speaks for the whole machine and must not
    be touched). Elsewhere the limit by user holds, except for the machine's own root.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if alone and version >= (6, 14):
        _write("/proc/sys/kernel/pid_max", PROCESSES)
        return
    if Path("/proc/self/uid_map").read_text().split()[:2] == ["0", "0"]:
        raise OSError("the limit of processes does not bind root")
    _lower(resource.RLIMIT_NPROC, PROCESSES)


def _write(path: str, value: int) -> None:
    Path(path).write_text(f"{value}\n")


def limit(memory_bytes: int, file_bytes: int) -> None:
    """Bounds on memory beyond what is mapped already, private and in all, on processor time, files and core dumps."""
    wanted = {
        resource.RLIMIT_DATA: memory_bytes,
        resource.RLIMIT_AS: _mapped_bytes() + memory_bytes,
        resource.RLIMIT_CPU: CPU_S,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_SIGPENDING: SIGNALS,
    }
    for kind, value in wanted.items():
        _lower(kind, value)


def _lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def python_folders() -> list[str]:
    """Where this interpreter and its packages lie."""
    return [folder for folder in {sys.prefix, sys.base_prefix, *sys.path} if folder and Path(folder).exists()]


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 if there is none."""
    try:
        return syscalls.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def landlock(readable: Sequence[str], writable: Sequence[str]) -> None:
    """Allow reading and executing below `readable`, everything below `writable`, names below `LISTED`, and nothing else."""
    abi = landlock_abi()
    if abi == 0:
        raise OSError("the kernel has no Landlock")
    every = (1 << max(count for version, count in _RIGHTS_BY_ABI if version <= abi)) - 1
    attributes = (ctypes.c_uint64 * 3)(every, 0, _SCOPES if abi >= 6 else 0)
    size = 24 if abi >= 6 else 8
    ruleset = syscalls.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for folder in readable:
            _allow(ruleset, folder, _READ)
        for folder in LISTED:
            _allow(ruleset, folder, _LIST)
        for folder in writable:
            _allow(ruleset, folder, every)
        syscalls.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, folder: str, rights: int) -> None:
    if not Path(folder).exists():
        return
    below = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        if not Path(folder).is_dir():
            rights &= _FILE_RIGHTS
        rule = rights.to_bytes(8, "little") + below.to_bytes(4, "little")
        buffer = ctypes.create_string_buffer(rule, 12)
        syscalls.syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), buffer, ctypes.c_uint32(0))
    finally:
        os.close(below)
