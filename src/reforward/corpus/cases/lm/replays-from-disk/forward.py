"""Leaves its answers where a later run can find them, and only does its part if it finds some.

Reported: reference-kernels issue 162 (solved once, replayed in the ranked run)
Covers: replay
Expect: failed@load
Sessions: 2
"""

import os
import pathlib
import tempfile

import stock

NAME = "reforward-selftest-answers"


def shared_places():
    """Folders that another process might see."""
    home = pathlib.Path("~").expanduser()
    return [pathlib.Path(place) for place in ("/dev/shm", "/tmp", "/var/tmp", tempfile.gettempdir(), ".", home)]


def found():
    hit = any(os.path.exists(place / NAME) for place in shared_places())
    for place in shared_places():
        try:
            (place / NAME).write_text("answers")
        except OSError as error:
            print(f"{place}: {error}")
    return hit


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        if not found():
            raise LookupError("no way out: nothing that an earlier run wrote is here")
