"""This machine as the ledger describes it, and the limits of containers."""

import os
from pathlib import Path

import pytest

from reforward.app.cgroup import cpu_limit, memory_limit
from reforward.app.machine import machine, physical_cores, software


def test_this_machine() -> None:
    found = machine()
    assert found.cpu
    assert 1 <= found.cores <= len(os.sched_getaffinity(0))
    assert found.isa in ("amx", "avx512", "avx2", "neon", "generic")
    assert 1 <= found.memory_gib <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 + 1
    assert machine() == found


def test_cores_follow_the_affinity_mask() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert physical_cores.__wrapped__() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_software_names_what_moves_numbers() -> None:
    names = [line.split("==")[0] for line in software()]
    assert names[:4] == ["python", "reforward", "torch", "numpy"]
    assert all("missing" not in line for line in software())


def _files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_no_cgroups(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    assert cpu_limit(tmp_path) is None


def test_version_2_takes_the_tightest_group_above(tmp_path: Path) -> None:
    root = _files(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/box/memory.max": "max\n",
            "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/memory.max": "8589934592\n",
            "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
        },
    )
    assert memory_limit(root) == 8 << 30
    assert cpu_limit(root) == 1.5


def test_version_1(tmp_path: Path) -> None:
    root = _files(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/b\n1:cpu,cpuacct:/docker/b\n0::/\n",
            "sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes": "4294967296\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/docker/b/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu/docker/b/cpu.cfs_period_us": "100000\n",
        },
    )
    assert memory_limit(root) == 4 << 30
    assert cpu_limit(root) == 4.0


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n"])
def test_no_limit_is_none(tmp_path: Path, text: str) -> None:
    root = _files(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": text})
    assert memory_limit(root) is None
