"""A client of somebody's door: what `reforward ask` does."""

from pathlib import Path
from typing import Any

from reforward.app.trees import read_files
from reforward.domain.errors import BadInput
from reforward.domain.job import Kind
from reforward.propose.knock import PATHS, finished, knock


def ask(kind: Kind, folder: Path, *, door: str, reason: str, repeat: int) -> dict[str, Any]:
    """Send a folder's tree through the door and wait for the result; returns the job's state."""
    if not door:
        raise BadInput(
            "there is no door to ask at; pass --door URL or set REFORWARD_DOOR, as `reforward mcp` printed it"
        )
    files = {file.path: file.text for file in read_files(folder)}
    return finished(door, knock(f"{door}/{PATHS[kind]}", {"files": files, "reason": reason, "repeat": repeat}))
