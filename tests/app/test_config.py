"""Settings from four layers, and clear words about wrong ones."""

import os
from pathlib import Path

import pytest

from reforward.app.config import load_config
from reforward.app.machine import physical_cores
from reforward.domain.errors import BadInput


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder and no settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("REFORWARD_", "XDG_"))]:  # noqa: TID251
        monkeypatch.delenv(name)


def test_defaults_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    config = load_config()
    assert config.home == Path("/home/someone/.local/share/reforward")
    assert config.cache == Path("/home/someone/.cache/reforward")
    assert config.ledger.parent == config.blobs.parent == config.home
    assert config.threads == physical_cores() >= 1


def test_the_device_is_one_that_an_engine_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_config().device == "cpu"
    monkeypatch.setenv("REFORWARD_DEVICE", "cuda")
    assert load_config().device == "cuda"
    monkeypatch.setenv("REFORWARD_DEVICE", "tpu")
    with pytest.raises(BadInput, match="device='tpu' is not known; known are cpu, cuda"):
        load_config()


def test_desktop_folders_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    config = load_config()
    assert (config.home, config.cache) == (Path("/data/reforward"), Path("/cache/reforward"))


def test_each_layer_covers_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reforward.toml").write_text('threads = 3\nhome = "~/from-file"\ncache = "c"\n')
    monkeypatch.setenv("HOME", "/home/someone")
    assert load_config().threads == 3
    assert load_config().home == Path("/home/someone/from-file")
    monkeypatch.setenv("REFORWARD_THREADS", "5")
    monkeypatch.setenv("REFORWARD_HOME", "/from-environment")
    assert load_config().threads == 5
    assert load_config().home == Path("/from-environment")
    assert load_config(threads=7).threads == 7
    assert load_config(threads=7).cache == Path("c")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("thread = 3", "reforward.toml: unknown setting 'thread'; known are home, cache, threads"),
        ('threads = "many"', "reforward.toml: threads='many' is no whole number"),
        ("threads = 0", "reforward.toml: threads=0 is no whole number from 1 to 1024"),
        ("home = 5", "reforward.toml: home=5 is no path"),
        ("home = ''", "home='' is no path"),
        ('home = "a\\u0000b"', "is no path"),
        ('home = "~nobody-of-this-name/x"', "nobody's home"),
        ("threads = true", "threads=True is no whole number"),
        ("threads = 1.7", "threads=1.7 is no whole number"),
        ("threads = 1000000000", "no whole number from 1 to 1024"),
        ("threads = [", "reforward.toml is not TOML"),
        ("\udcff", "reforward.toml is not TOML"),
    ],
)
def test_a_wrong_file(tmp_path: Path, toml: str, message: str) -> None:
    (tmp_path / "reforward.toml").write_bytes(toml.encode(errors="surrogateescape"))
    with pytest.raises(BadInput) as caught:
        load_config()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("REFORWARD_HOMES", "/x", "environment: unknown setting 'homes'"),
        ("REFORWARD_THREADS", "2.5", "environment: threads='2.5' is no whole number"),
        ("REFORWARD_THREADS", "-1", "environment: threads='-1' is no whole number"),
    ],
)
def test_a_wrong_environment(monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(BadInput) as caught:
        load_config()
    assert message in str(caught.value)
