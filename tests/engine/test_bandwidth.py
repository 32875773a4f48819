"""The read bandwidth is measured in a process of its own; caches are counted once."""

from pathlib import Path

from reforward.engine.bandwidth import last_level_bytes, read_bandwidth


def test_the_bandwidth_is_that_of_a_memory_not_of_a_cache_or_a_disk() -> None:
    assert 1e8 < read_bandwidth(1).read_bytes_s < 1e12


def test_a_cache_that_several_cores_share_counts_once(tmp_path: Path) -> None:
    for core, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        for index, (level, size, cores) in enumerate(((1, "32K", str(core)), (3, "1024K", shared))):
            folder = tmp_path / f"cpu{core}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", cores)):
                (folder / name).write_text(f"{text}\n")
    assert last_level_bytes(tmp_path) == 2 << 20
    assert last_level_bytes(tmp_path / "nothing") == 0
