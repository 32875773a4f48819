"""Differences between two candidates, as a person would review them."""

import difflib

from reforward.domain.candidate import Candidate
from reforward.domain.errors import BadInput
from reforward.domain.record import short


def unified(old: Candidate, new: Candidate) -> str:
    """Unified diff over all files of both trees; empty if they are the same. `BadInput` for trees of two hosts."""
    if old.host != new.host:
        raise BadInput(
            f"{short(old.id)} is of host {old.host} and {short(new.id)} of host {new.host}: "
            "a difference between them says nothing; give two candidates of one subject"
        )
    return "".join(_file_diff(old, new, path) for path in _paths(old, new))


def stat(old: Candidate, new: Candidate) -> tuple[tuple[str, int, int], ...]:
    """(path, lines added, lines removed) of each file that differs."""
    rows: list[tuple[str, int, int]] = []
    for path in _paths(old, new):
        lines = _file_diff(old, new, path).splitlines()[2:]
        if lines:
            added = sum(line.startswith("+") for line in lines)
            rows.append((path, added, sum(line.startswith("-") for line in lines)))
    return tuple(rows)


def _paths(old: Candidate, new: Candidate) -> list[str]:
    return sorted({file.path for file in old.files} | {file.path for file in new.files})


def _file_diff(old: Candidate, new: Candidate, path: str) -> str:
    before, after = old.text_of(path), new.text_of(path)
    lines = difflib.unified_diff(
        (before or "").splitlines(keepends=True),
        (after or "").splitlines(keepends=True),
        f"a/{path}" if before is not None else "/dev/null",
        f"b/{path}" if after is not None else "/dev/null",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
