"""Runs a program that must not outlive whoever started it: when stdin closes, the whole process group is killed.

`python -m reforward.propose.leash PROGRAM ARGUMENT...`, started as the leader of a session of its own.
"""

import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    """Ends with the program's exit code; 128 and the signal's number if one killed it."""
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_watch, daemon=True).start()
    code = program.wait()
    sys.exit(code if code >= 0 else 128 - code)


def _watch() -> None:
    while os.read(0, 1):
        continue
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
