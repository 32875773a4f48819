"""Which page kind and which protections this machine gives a worker, found by asking a short-lived process.

python -m reforward.engine.probe      prints one JSON document
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from reforward.engine import keeper, sandbox
from reforward.engine.cpu import environment
from reforward.engine.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Protections:
    """As the engine will find it."""

    pages: str
    active: tuple[str, ...]


def protections() -> Protections:
    """Try them in a process of its own, which may leave its namespaces."""
    command = [sys.executable, "-m", "reforward.engine.probe"]
    done = subprocess.run(command, env=environment(1), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        return Protections(pages="4k", active=())
    found = json.loads(done.stdout)
    return Protections(pages=found["pages"], active=tuple(found["active"]))


def main() -> None:
    """Mount, confine a child, print."""
    root = Path(tempfile.mkdtemp(prefix="reforward-probe-"))
    private = sandbox.own_mounts()
    vault = Vault(root, private=private)
    vault.load(())
    scratch = root / "scratch"
    scratch.mkdir()
    active = keeper.probe(scratch, private=private)
    print(json.dumps({"pages": vault.pages, "active": active}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
