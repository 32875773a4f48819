"""The doctor on this machine, and on a machine that lacks things."""

import subprocess
from pathlib import Path

import pytest

from reforward.app import doctor
from reforward.app.config import Config
from reforward.app.doctor import Check, examine
from reforward.domain.errors import EngineLost
from reforward.engine.builds import compiler_version


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(home=tmp_path / "home", cache=tmp_path / "cache", threads=2)


def _by_name(checks: tuple[Check, ...]) -> dict[str, Check]:
    found = {check.name: check for check in checks}
    assert len(found) == len(checks), "each thing is examined once"
    return found


def test_this_machine_is_fit(config: Config) -> None:
    checks = _by_name(examine(config))
    lacking = [check for check in checks.values() if check.required and not check.ok]
    assert lacking == []
    assert {"python", "torch", "machine", "cache", "ledger", "C++ compiler", "SmolLM2 weights"} <= set(checks)
    assert checks["ledger"].detail.startswith(str(config.ledger))
    assert all(check.remedy for check in checks.values() if not check.ok)


def test_a_home_and_a_cache_that_cannot_be_written(config: Config, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    checks = _by_name(examine(Config(home=blocked, cache=blocked, threads=1)))
    assert not checks["cache"].ok
    assert "REFORWARD_CACHE" in checks["cache"].remedy
    assert not checks["ledger"].ok
    assert "REFORWARD_HOME" in checks["ledger"].remedy


def test_no_compiler_is_no_obstacle(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(doctor, "compiler_version", compiler_version.__wrapped__)
    compiler = _by_name(examine(config))["C++ compiler"]
    assert not compiler.ok
    assert not compiler.required
    assert "apt install g++" in compiler.remedy


@pytest.mark.parametrize("error", [EngineLost("no fork"), subprocess.TimeoutExpired("probe", 60)])
def test_protections_that_cannot_be_tried(config: Config, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def lost() -> doctor.Protections:
        raise error

    monkeypatch.setattr(doctor, "protections", lost)
    check = _by_name(examine(config))["worker protections"]
    assert not check.ok
    assert check.required
    assert str(error) in check.detail
