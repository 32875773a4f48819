"""Which protections workers get on this machine, tried for real in a process of its own.

python -m reforward.engine.probe      prints one JSON document
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from reforward.domain.target import PageKind
from reforward.engine import sandbox
from reforward.engine.keeper import probe
from reforward.engine.program import told_by
from reforward.engine.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Protections:
    """What an engine would find."""

    pages: PageKind
    """Kind of page that would back the weights."""
    active: tuple[str, ...]
    """Names of protections, as in `Launch.sandbox`."""


def protections() -> Protections:
    """Confine a child the way a worker is confined, and ask it."""
    found = told_by("reforward.engine.probe")
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
