"""An agent that is a program: started in a folder of its own, told where the door is, killed with its process group."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from reforward.domain.errors import BadInput
from reforward.propose.guest import MOST_TRANSCRIPT, Guest, Left

POLL_S, GRACE_S = 0.1, 5.0
CUT = b"\n[cut here]\n"


class Command:
    """Implements `Agent`. `{brief}` and `{door}` in the command stand for the brief's file and the agent's address.

    The folder holds `brief.md`, `source/` (a tree to start from) and `notes/`. The program has the rights of the user who
    started it; only what it submits is confined.
    """

    def __init__(self, template: str, environment: Mapping[str, str], *, remedy: str = "") -> None:
        self.spec, self.environment = f"command:{template}", dict(environment)
        self.remedy = remedy or "install it, or give its whole path"
        try:
            self.words = shlex.split(template)
        except ValueError as error:
            raise BadInput(f"command {template!r} cannot be split into words ({error}); check its quotes") from None
        if not self.words:
            raise BadInput('the command is empty; write command:"program argument"')
        self.name = Path(self.words[0]).name

    def work(self, guest: Guest) -> Left:
        """Until the program ends or must be stopped."""
        fill(guest)
        environment = self.environment | {"REFORWARD_DOOR": guest.door}
        if shutil.which(self.words[0], path=environment.get("PATH")) is None:
            return Left(how=f"{self.words[0]!r} is not installed; {self.remedy}", transcript=b"")
        process = subprocess.Popen(
            [sys.executable, "-m", "reforward.propose.leash", *self._filled(guest)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=guest.folder,
            env=environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        heard = _Heard(process.stdout)
        try:
            how = _wait(process, guest.over)
        finally:
            _kill(process)
            heard.join()
        return Left(how=how, transcript=bytes(heard.text))

    def _filled(self, guest: Guest) -> list[str]:
        named = {"{brief}": str(guest.folder / "brief.md"), "{door}": guest.door}
        words = self.words
        for name, value in named.items():
            words = [word.replace(name, value) for word in words]
        return words


def fill(guest: Guest) -> None:
    """Write what the folder holds."""
    (guest.folder / "notes").mkdir(parents=True)
    (guest.folder / "brief.md").write_text(guest.brief, encoding="utf-8")
    for file in guest.tree.files:
        path = guest.folder / "source" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")


def _wait(process: "subprocess.Popen[bytes]", over: Callable[[], bool]) -> str:
    """How it ended, in words."""
    while process.poll() is None:
        if over():
            return "stopped: the run has ended"
        time.sleep(POLL_S)
    return "done" if process.returncode == 0 else f"exit code {process.returncode}"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """The whole group: first asked, then forced."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Heard(threading.Thread):
    """Reads what a program says to its end; keeps the first part, so that a chatty one fills no memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.stream, self.text = stream, bytearray()
        self.start()

    def run(self) -> None:
        while part := os.read(self.stream.fileno(), 1 << 16):
            if len(self.text) < MOST_TRANSCRIPT:
                self.text += part[: MOST_TRANSCRIPT - len(self.text)]
                self.text += CUT if len(self.text) >= MOST_TRANSCRIPT else b""

    def join(self, timeout: float | None = GRACE_S) -> None:
        super().join(timeout)
