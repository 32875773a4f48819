"""An agent that is a program: started in a folder of its own, told where the door is, killed with its process group."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from reforward.domain.errors import BadInput
from reforward.propose.guest import MOST_TRANSCRIPT, Guest, Left, fill

POLL_S, GRACE_S = 0.1, 5.0
CUT = b"\n[cut here]\n"
SCRATCH = "tmp"
"""Folder beside the source for temporary files."""
REMEDY = "install it, or give its whole path"


class Command:
    """Implements `Agent`. `{brief}`, `{folder}` and `{door}` in a word stand for its brief, its folder and its address.

    The folder holds `brief.md`, `source/` (a tree to start from), `notes/`, `tmp/`, and the files of `config`, whose texts are
    filled in as the words are. The program may write below its folder and below `writes`, and nowhere else if the kernel has
    Landlock; for the rest it has the rights of the user who started it.
    """

    counts_cost = False

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        *,
        spec: str,
        remedy: str = REMEDY,
        config: Mapping[str, str] | None = None,
        writes: Sequence[Path] = (),
    ) -> None:
        self.words, self.environment, self.spec, self.remedy = words, dict(environment), spec, remedy
        self.config, self.writes = config or {}, writes
        self.name = Path(self.words[0]).name

    def work(self, guest: Guest) -> Left:
        """Until the program ends or must be stopped."""
        self._arrange(guest)
        scratch = guest.folder / SCRATCH
        here = {"PWD": str(guest.folder.absolute()), "REFORWARD_DOOR": guest.door, "TMPDIR": str(scratch.absolute())}
        environment = self.environment | here
        if shutil.which(self.words[0], path=environment.get("PATH")) is None:
            return Left(how=f"{self.words[0]!r} is not installed; {self.remedy}", transcript=b"")
        process = subprocess.Popen(
            [*self._leash(guest), *(_filled(word, guest) for word in self.words)],
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

    def _arrange(self, guest: Guest) -> None:
        fill(guest)
        (guest.folder / SCRATCH).mkdir()
        for name, text in self.config.items():
            path = guest.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_filled(text, guest), encoding="utf-8")
        for place in self.writes:
            place.mkdir(parents=True, exist_ok=True)

    def _leash(self, guest: Guest) -> list[str]:
        places = [str(guest.folder.absolute()), *map(str, self.writes)]
        return [sys.executable, "-m", "reforward.propose.leash", *places, "--"]


def split(template: str) -> list[str]:
    """A command line as words."""
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise BadInput(f"command {template!r} cannot be split into words ({error}); check its quotes") from None
    if not words:
        raise BadInput('the command is empty; write command:"program argument"')
    return words


def _filled(text: str, guest: Guest) -> str:
    named = {"{brief}": str(guest.folder / "brief.md"), "{folder}": str(guest.folder), "{door}": guest.door}
    for name, value in named.items():
        text = text.replace(name, value)
    return text


def _wait(process: "subprocess.Popen[bytes]", over: Callable[[], str]) -> str:
    """How it ended, in words."""
    while process.poll() is None:
        if why := over():
            return f"stopped: {why}"
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
