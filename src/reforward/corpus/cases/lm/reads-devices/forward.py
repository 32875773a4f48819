"""Reads what root may read though it is nobody's business: disks and terminals as files, and hashes of passwords.

Reported: ours: a disk holds the ledger, and every other file too
Covers: reading the reference
Expect: failed@run
"""

import os
import pathlib

import stock

HARMLESS = {"null", "zero", "full", "random", "urandom", "fd", "shm", "stdin", "stdout", "stderr"}


def opens(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


class Forward(stock.Forward):
    def step(self, batch, logits):
        devices = [path for path in pathlib.Path("/dev").iterdir() if path.name not in HARMLESS and not path.is_dir()]
        devices = [path for path in devices if not path.name.startswith("nvidia")]
        if not any(opens(path) for path in [*devices, "/etc/shadow"]):
            raise PermissionError("no way out: no device can be read")
        super().step(batch, logits)
