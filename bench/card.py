"""What every benchmark prints: the ceiling first, a table for people, one JSON line last."""

import json
import statistics
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reforward.app.machine import machine, software

console = Console(highlight=False, soft_wrap=True, width=140)
RESULTS = Path(__file__).parent / "results"


def ceiling(text: str) -> None:
    """What no implementation can beat here, before anything is measured."""
    console.print(f"[bold]ceiling[/] {text}")


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table."""
    drawn = Table(*map(escape, header), title=escape(title), box=None, title_justify="left")
    for row in rows:
        drawn.add_row(*map(escape, row))
    console.print(drawn)


def spread(values: Sequence[float], digits: int = 3) -> str:
    """`median [min, max]`."""
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def commit() -> str:
    """Short hash of the commit that is measured, with `+` if the tree has other changes."""
    root = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if git("status", "--porcelain", "-uno") else "")


def finish(bench: str, figures: dict[str, Any]) -> None:
    """The JSON line, printed last and appended to `bench/results/<bench>.jsonl`."""
    about = machine()
    line = json.dumps(
        {
            "bench": bench,
            "machine": {"cpu": about.cpu, "cores": about.cores, "isa": about.isa, "devices": about.devices},
            "software": software(),
            "commit": commit(),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "figures": figures,
        }
    )
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{bench}.jsonl").open("a") as file:
        file.write(line + "\n")
    print(line)
