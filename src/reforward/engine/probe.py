"""Which protections workers get on this machine, tried for real in a process of its own.

python -m reforward.engine.probe      prints one JSON document
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from reforward.domain.errors import EngineLost
from reforward.domain.target import PageKind
from reforward.engine import sandbox
from reforward.engine.environment import environment
from reforward.engine.keeper import probe
from reforward.engine.vault import Vault

TIMEOUT_S = 60


@dataclass(frozen=True, kw_only=True)
class Protections:
    """What an engine would find."""

    pages: PageKind
    """Kind of page that would back the weights."""
    active: tuple[str, ...]
    """Names of protections, as in `Launch.sandbox`."""


def protections() -> Protections:
    """Confine a child the way a worker is confined, and ask it."""
    command = [sys.executable, "-P", "-m", "reforward.engine.probe"]
    done = subprocess.run(command, env=environment(1), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise EngineLost(f"protections cannot be tried: {done.stderr.strip()[-1000:]}")
    found = json.loads(done.stdout)
    return Protections(pages="huge" if found["pages"] == "huge" else "4k", active=tuple(found["active"]))


def main() -> None:
    """Try everything, print what was granted."""
    private = sandbox.own_mounts()
    with tempfile.TemporaryDirectory(prefix="reforward-") as folder:
        vault = Vault(Path(folder), private=private)
        vault.load(())
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        print(json.dumps({"pages": vault.pages, "active": probe(scratch, private=private)}))
        vault.close()


if __name__ == "__main__":
    main()
