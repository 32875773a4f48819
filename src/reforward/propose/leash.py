"""Runs a program that may write in a few places only, and must not outlive whoever started it.

`python -m reforward.propose.leash PLACE... -- PROGRAM ARGUMENT...`, started as the leader of a session of its own. When stdin
closes, the whole process group is killed. Landlock (https://docs.kernel.org/userspace-api/landlock.html) lets the program read
what the user may read, and write below the places.
"""

import os
import signal
import subprocess
import sys
import threading

from reforward.engine import sandbox, syscalls

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")


def main() -> None:
    """Ends with the program's exit code; 128 and the signal's number if one killed it."""
    at = sys.argv.index("--")
    _confine(sys.argv[1:at])
    program = subprocess.Popen(sys.argv[at + 1 :], stdin=subprocess.DEVNULL)
    threading.Thread(target=_watch, daemon=True).start()
    code = program.wait()
    sys.exit(code if code >= 0 else 128 - code)


def _confine(places: list[str]) -> None:
    """A kernel without Landlock is told in the transcript; `reforward doctor` names the remedy."""
    try:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        sandbox.landlock(["/"], [*places, *DEVICES])
    except OSError as error:
        os.write(2, f"[this program may write wherever you may: {error}]\n".encode())


def _watch() -> None:
    while os.read(0, 1):
        continue
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
