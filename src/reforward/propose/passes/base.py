"""What a mechanical pass is: a name, a reason, what it needs, and a function from candidate to candidate."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import libcst as cst

from reforward.domain.candidate import Candidate

Rewrite = Callable[[cst.Module], cst.Module | None]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One rewrite that a reviewer could accept. Leaves code of another shape alone."""

    name: str
    reason: str
    """One sentence: what it changes and why that should pay."""
    apply: Callable[[Candidate], Candidate | None]
    """The changed candidate, or None if there is nothing to change. Never an identical candidate."""
    needs: tuple[str, ...] = ()
    """Of `TOOLS`: what the machine must have to build the result."""
    bits: Literal["same", "maybe", "other"] = "other"
    """What it does to the bits of outputs; only `other` is not worth trying under a bit-exact contract."""
    slow: bool = False
    """Takes minutes to build or warm up."""
    threads: int = 1
    """Least threads of the launch with which it changes anything."""
    rank: float = 0.0
    """Gain to expect, as a fraction; orders the first round of the search."""


TOOLS = {"c++": "install a C++ compiler (Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++)"}
"""What a pass may need, with the remedy when it is missing."""


def on_entry(change: Rewrite) -> Callable[[Candidate], Candidate | None]:
    """A pass that rewrites the file with the entry point."""

    def apply(candidate: Candidate) -> Candidate | None:
        return _changed(candidate, (candidate.entry_file,), change)

    return apply


def on_all(change: Rewrite) -> Callable[[Candidate], Candidate | None]:
    """A pass that rewrites every Python file of the tree for itself."""

    def apply(candidate: Candidate) -> Candidate | None:
        return _changed(candidate, tuple(f.path for f in candidate.files if f.path.endswith(".py")), change)

    return apply


def _changed(candidate: Candidate, paths: tuple[str, ...], change: Rewrite) -> Candidate | None:
    texts: dict[str, str] = {}
    for path in paths:
        text = candidate.text_of(path)
        module = parse(text) if text else None
        changed = change(module) if module else None
        if changed is not None and changed.code != text:
            texts[path] = changed.code
    return candidate.with_files(texts) if texts else None


@cache
def parse(text: str) -> cst.Module | None:
    """The module, or None if it is not Python: an unfinished tree is not a pass's business."""
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError:
        return None


@cache
def kernel(name: str) -> str:
    """The text of one file under `kernels/`."""
    return (Path(__file__).parent.parent / "kernels" / name).read_text(encoding="utf-8")
