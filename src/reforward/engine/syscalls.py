"""The few Linux calls that Python does not offer, through ctypes. Each raises `OSError`."""

import ctypes
import os

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 0x4000, 1 << 18
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
_CAPSET = 126
_CAP_VERSION = 0x20080522
LAST_CAP = 40

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def unshare(flags: int) -> None:
    """Leave the given namespaces."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(_libc.mount(*arguments), f"mount {kind} on {target}")


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one argument."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl({option})")


def syscall(number: int, *arguments: object) -> int:
    """A raw call, for those without a wrapper in libc."""
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), f"syscall {number}")


def drop_capabilities() -> None:
    """Empty the bounding set and all capability sets of this process."""
    for capability in range(LAST_CAP + 1):
        prctl(PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION, 0)
    empty = (ctypes.c_uint32 * 6)()
    syscall(_CAPSET, ctypes.byref(header), ctypes.byref(empty))


def unmount(target: str) -> None:
    """umount2(2), lazily: what is still mapped stays until it is let go."""
    _check(_libc.umount2(target.encode(), 2), f"umount {target}")
