"""Which kernel calls a worker may not make: a filter in classic BPF, put together here and handed to the kernel once.

The rest of the sandbox says what a worker may see and how much it may use; this closes what would get around that: other
processes' memory, new namespaces (and the capabilities that come with them), mounts, kernel interfaces with a long record of
holes, sockets, memory and work of the kernel's own that no process is charged for (System V segments and queues, requests
that go on while their owner is stopped), and calls by which one process slows another. Of sockets only connected stream pairs
are left, since a socket in the file system may belong to a service that trusts our user. On a device its driver also listens on
a unix socket of its own; there such a socket can be made, and connected to nothing.

Kernel: https://docs.kernel.org/userspace-api/seccomp_filter.html; instructions: Linux `include/uapi/linux/bpf_common.h`.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from reforward.engine import syscalls

NUMBERS: dict[str, tuple[int, int]] = {
    "bpf": (321, 280), "chroot": (161, 51), "clock_settime": (227, 112), "delete_module": (176, 106),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105), "io_setup": (206, 0),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioprio_set": (251, 30),
    "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "migrate_pages": (256, 238), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "move_pages": (279, 239), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "mq_open": (240, 180), "msgget": (68, 186), "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438), "pivot_root": (155, 41), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "reboot": (169, 142), "sched_setattr": (314, 274), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "semget": (64, 190), "set_mempolicy_home_node": (450, 450),
    "setns": (308, 268), "setpriority": (141, 140), "settimeofday": (164, 170), "shmget": (29, 194),
    "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "timerfd_create": (283, 85), "umount2": (166, 39),
    "unshare": (272, 97), "userfaultfd": (323, 282),
}  # fmt: skip
"""Calls that are refused whatever their arguments: name to number on (x86_64, aarch64)."""
CHECKED: dict[str, tuple[int, int]] = {
    "clone": (56, 220), "clone3": (435, 435), "connect": (42, 203), "madvise": (28, 233), "mbind": (237, 235),
    "sched_setaffinity": (203, 122),
    "socket": (41, 198), "socketpair": (53, 199),
}  # fmt: skip
"""Calls that are refused for some arguments, or in a way of their own."""
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine to column above and the kernel's own number for it (`AUDIT_ARCH_*`)."""
NEW_NAMESPACES = 0x7E020000
"""All CLONE_NEW* that clone(2) knows."""
SOCK_KIND, SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET = 0xF, 1, 2, 5
AF_UNIX = 1
MADV_COLD, MADV_PAGEOUT = 20, 21
"""Would push the pages of the shared weights out of memory, for the other arm too."""

MPOL_MF_MOVE, MPOL_MF_MOVE_ALL = 2, 4
"""Would move the shared weights to memory that is far from the other arm."""

_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`; the low half of argument i lies at 16 + 8 i."""
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32 = 0x40000000
_SECCOMP = (317, 277)
_SET_MODE_FILTER, _SPEC_ALLOW = 1, 4
"""The flag keeps the processor's speculation as it is outside: a worker must not be slower than what will be deployed."""


class Instruction(NamedTuple):
    """One step: what to do, how many steps to pass over if it holds and if not, and the operand."""

    code: int
    holds: int
    fails: int
    operand: int


def load_filter(*, others_in_sight: bool, device: bool) -> None:
    """Refuse the calls above from now on, for this process and all that it starts. `OSError` if the kernel refuses.

    `others_in_sight`: there is no pid namespace of its own, so affinity may be set of this thread only. `device`: for a worker
    that uses a device's driver.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no table of calls for {machine}")
    code = b"".join(
        struct.pack("=HBBI", *step) for step in program(machine, others_in_sight=others_in_sight, device=device)
    )
    steps = ctypes.create_string_buffer(code, len(code))
    about = struct.pack("@HP", len(code) // 8, ctypes.addressof(steps))
    mode, flags = ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_SPEC_ALLOW)
    syscalls.syscall(_SECCOMP[ARCHITECTURES[machine][0]], mode, flags, ctypes.c_char_p(about))


def program(machine: str, *, others_in_sight: bool, device: bool) -> list[Instruction]:
    """The whole filter for one machine."""
    column, architecture = ARCHITECTURES[machine]
    number = {name: numbers[column] for name, numbers in (NUMBERS | CHECKED).items()}
    refused = [step for name in NUMBERS for step in _when(number[name], [_refuse(errno.EPERM)])]
    return [
        _load(_ARCHITECTURE),
        *_unless(architecture, [_refuse(errno.EPERM)]),
        _load(_NUMBER),
        Instruction(_JUMP_ABOVE, 0, 1, _X32),
        _refuse(errno.ENOSYS),
        *refused,
        *_when(number["clone3"], [_refuse(errno.ENOSYS)]),  # its flags lie in memory; callers fall back to clone
        *_when(number["clone"], _if_any_bit(0, NEW_NAMESPACES)),
        *_when(number["socket"], _unless_unix_stream() if device else [_refuse(errno.EAFNOSUPPORT)]),
        *_when(number["connect"], [_refuse(errno.EPERM)]),
        *_when(number["socketpair"], _if_one_of(1, [SOCK_DGRAM], mask=SOCK_KIND)),
        *_when(number["madvise"], _if_one_of(2, [MADV_COLD, MADV_PAGEOUT])),
        *_when(number["mbind"], _if_any_bit(5, MPOL_MF_MOVE | MPOL_MF_MOVE_ALL)),
        *(_when(number["sched_setaffinity"], _unless_zero(0)) if others_in_sight else []),
        Instruction(_RETURN, 0, 0, _ALLOW),
    ]


def _load(offset: int) -> Instruction:
    return Instruction(_LOAD, 0, 0, offset)


def _refuse(code: int) -> Instruction:
    return Instruction(_RETURN, 0, 0, _ERRNO | code)


def _when(value: int, then: Sequence[Instruction]) -> list[Instruction]:
    """`then`, which returns, if the loaded word equals the value."""
    return [Instruction(_JUMP_EQUAL, 0, len(then), value), *then]


def _unless(value: int, then: Sequence[Instruction]) -> list[Instruction]:
    return [Instruction(_JUMP_EQUAL, len(then), 0, value), *then]


def _argument(index: int) -> Instruction:
    return _load(_ARGUMENTS + 8 * index)


_DECIDED = [Instruction(_RETURN, 0, 0, _ALLOW)]


def _if_any_bit(index: int, bits: int) -> list[Instruction]:
    return [_argument(index), Instruction(_JUMP_ANY_BIT, 0, 1, bits), _refuse(errno.EPERM), *_DECIDED]


def _if_one_of(index: int, values: Sequence[int], *, mask: int = 0xFFFFFFFF) -> list[Instruction]:
    tests = [step for value in values for step in _when(value, [_refuse(errno.EPERM)])]
    return [_argument(index), Instruction(_AND, 0, 0, mask), *tests, *_DECIDED]


def _unless_unix_stream() -> list[Instruction]:
    """A datagram socket would need no connection to reach somebody."""
    kinds = [step for kind in (SOCK_STREAM, SOCK_SEQPACKET) for step in _when(kind, _DECIDED)]
    masked = [_argument(1), Instruction(_AND, 0, 0, SOCK_KIND)]
    return [
        _argument(0),
        *_unless(AF_UNIX, [_refuse(errno.EAFNOSUPPORT)]),
        *masked,
        *kinds,
        _refuse(errno.EAFNOSUPPORT),
    ]


def _unless_zero(index: int) -> list[Instruction]:
    return [_argument(index), *_unless(0, [_refuse(errno.EPERM)]), *_DECIDED]
