"""What outlives what: a killed server, a killed controller, an ordinary user."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.tiny import LIMITS, in_step, stock, write_checkpoint
from reforward.domain.errors import EngineLost
from reforward.domain.spec import Segment
from reforward.engine import keeper
from reforward.engine.cpu import CpuEngine

ONE = ([7], [Segment(slot=0, start=0, length=1)], [0], 0)
TESTS = Path(__file__).parents[1]
CONTROLLER = """
import sys
from pathlib import Path
from engine.tiny import LIMITS, in_step, open_engine, stock
from reforward.domain.spec import Segment
engine = open_engine(Path(sys.argv[1]), Path(sys.argv[2]))
candidate = in_step("if os.fork() == 0: os.setsid(); time.sleep(3600)")
workers = [engine.start_lm(engine.prepare(c), depth=1, limits=LIMITS) for c in (candidate, stock())]
for worker in workers:
    worker.step([7], [Segment(slot=0, start=0, length=1)], [0], 0)
assert "torch" not in sys.modules
print(engine.target.launch.pages, *engine.target.launch.sandbox, sep=",")
print(engine.server.folder, engine.server.process.pid, *(w.process.pid for w in workers), flush=True)
"""


def controller(
    file: Path,
    cache: Path,
    tail: str,
    *,
    before: tuple[str, ...] = (),
    python: str = sys.executable,
    folders: Path = Path("/tmp"),
) -> "subprocess.Popen[str]":
    command = [*before, python, "-c", CONTROLLER + tail, str(file), str(cache)]
    environment = {"PATH": os.defpath, "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folders)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def interpreter(folder: Path) -> str:
    """A Python with our packages that others may run too: this one may lie in a private home."""
    system = Path(f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")
    if not system.exists():
        return sys.executable
    subprocess.run([system, "-m", "venv", "--without-pip", folder], check=True)
    packages = folder / f"lib/{system.name}/site-packages/ours.pth"
    packages.write_text("\n".join(path for path in sys.path if path.endswith(("site-packages", "src"))))
    return str(folder / "bin/python3")


def wait_until_gone(pids: list[int], seconds: float = 10) -> list[int]:
    until = time.monotonic() + seconds
    while (left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def session_of(server: int) -> list[int]:
    """Server, keepers, workers and all that these started."""
    found, queue = [], [server]
    while queue:
        pid = queue.pop()
        found.append(pid)
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            queue += map(int, path.read_text().split())
    return found


def test_a_killed_controller_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    process = controller(checkpoint, tmp_path, "import time; time.sleep(600)")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        folder, server, *_ = process.stdout.readline().split()
        everything = session_of(int(server))
        assert len(everything) >= 6
    finally:
        process.kill()
        process.communicate()
    assert wait_until_gone(everything) == []
    assert not Path(folder).exists()


@pytest.mark.parametrize("after_s", [0.2, 0.6, 1.0, 1.4])
def test_a_controller_that_is_killed_while_the_server_starts_leaves_nothing(
    checkpoint: Path, tmp_path: Path, after_s: float
) -> None:
    process = controller(checkpoint, tmp_path, "import time; time.sleep(600)", folders=tmp_path)
    time.sleep(after_s)
    process.kill()
    process.communicate()
    until = time.monotonic() + 20
    while list(tmp_path.glob("reforward-*")) and time.monotonic() < until:
        time.sleep(0.1)
    assert list(tmp_path.glob("reforward-*")) == []


def test_a_killed_server_is_noticed_and_restarted(own_engine: CpuEngine) -> None:
    worker = own_engine.start_lm(own_engine.prepare(stock()), depth=1, limits=LIMITS)
    assert own_engine.server is not None
    everything = session_of(own_engine.server.process.pid)
    own_engine.server.process.send_signal(signal.SIGKILL)
    assert wait_until_gone(everything[1:]) == []
    with pytest.raises(EngineLost):
        worker.step(*ONE)
    fresh = own_engine.start_lm(own_engine.prepare(stock()), depth=1, limits=LIMITS)
    assert len(fresh.step(*ONE)) == 1
    fresh.close()


def test_a_worker_that_is_asked_while_the_server_dies(own_engine: CpuEngine) -> None:
    sleeper = in_step("time.sleep(60)")
    worker = own_engine.start_lm(own_engine.prepare(sleeper), depth=1, limits=LIMITS)
    assert own_engine.server is not None
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {own_engine.server.process.pid}"])
    with pytest.raises(EngineLost):
        worker.step(*ONE)
    killer.wait()


def test_closing_ends_everything(checkpoint: Path, tmp_path: Path) -> None:
    process = controller(checkpoint, tmp_path, "engine.close()")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    folder, *pids = out.splitlines()[1].split()
    assert wait_until_gone([int(pid) for pid in pids]) == []
    assert not Path(folder).exists()


def test_an_ordinary_user_gets_the_same(tmp_path: Path, engine: CpuEngine) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become an ordinary user")
    home = Path("/tmp") / f"reforward-test-{os.getpid()}"
    file = write_checkpoint(home)
    (home / "cache").mkdir()
    os.chown(home / "cache", 65534, 65534)
    home.chmod(0o755)
    drop = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    try:
        python = interpreter(home / "python")
        nested = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import torch, reforward']))"
        if subprocess.run([*drop, python, "-c", nested], check=False, capture_output=True).returncode != 0:
            pytest.skip("an ordinary user cannot read this installation")
        if subprocess.run([*drop, "unshare", "-Urm", "true"], check=False, capture_output=True).returncode != 0:
            pytest.skip("this machine refuses user namespaces to ordinary users")
        process = controller(file, home / "cache", "engine.close()", before=drop, python=python)
        out, err = process.communicate(timeout=60)
    finally:
        shutil.rmtree(home)
    assert out, err
    pages, *active = out.splitlines()[0].split(",")
    assert pages == engine.target.launch.pages
    assert tuple(active) == engine.target.launch.sandbox


def test_a_keeper_that_fails_before_its_worker_says_why_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse() -> tuple[str, ...]:
        raise OSError("no more processes")

    monkeypatch.setattr(keeper.sandbox, "leave_namespaces", refuse)
    nothing: Any = None
    with (tmp_path / "log").open("wb") as log:
        pid = os.fork()
        if pid == 0:
            sys.stderr = sys.__stderr__
            keeper.keep(nothing, nothing, nothing, tmp_path, None, [log.fileno(), log.fileno(), log.fileno()])
        _, status = os.waitpid(pid, 0)
    assert os.WEXITSTATUS(status) == 90
    assert "OSError: no more processes" in (tmp_path / "log").read_text()
