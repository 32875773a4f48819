"""What a container may use: the cgroup limits of this process, versions 1 and 2, as the kernel documents them."""

from collections.abc import Iterator
from pathlib import Path

NO_LIMIT = 1 << 60
"""Version 1 writes 'no limit' as a number close to 2**63."""


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that this process and its children may use together; None if nothing limits them."""
    found = [_number(folder / "memory.max") for folder in _folders(root, "")]
    found += [_number(folder / "memory.limit_in_bytes") for folder in _folders(root, "memory")]
    return min((each for each in found if each is not None and each < NO_LIMIT), default=None)


def cpu_limit(root: Path = Path("/")) -> float | None:
    """Processors' worth of time per second; None if nothing limits it."""
    found = [_quota_v2(folder / "cpu.max") for folder in _folders(root, "")]
    found += [_quota_v1(folder) for folder in _folders(root, "cpu")]
    return min((each for each in found if each is not None), default=None)


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """This process's group of one hierarchy (empty: version 2) and all groups above it, as far as they can be seen."""
    mount = root / "sys/fs/cgroup" / controller
    inside = _path_of(root / "proc/self/cgroup", controller)
    if inside is None or not mount.is_dir():
        return
    group = mount / inside.strip("/")
    yield from (folder for folder in (group, *group.parents) if folder == mount or mount in folder.parents)


def _path_of(table: Path, controller: str) -> str | None:
    """Lines are `number:controllers:path`; version 2 has no controllers."""
    lines = table.read_text().splitlines() if table.is_file() else []
    rows = (line.split(":", 2) for line in lines if line.count(":") >= 2)
    return next((path for _, names, path in rows if controller in names.split(",")), None)


def _quota_v2(file: Path) -> float | None:
    words = _words(file)
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _number(file: Path) -> int | None:
    words = _words(file)
    return int(words[0]) if words and words[0] != "max" else None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:  # no such limit here, or not ours to read
        return []
