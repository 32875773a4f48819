"""The package's own source, parsed once for all rules."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "reforward"
GUESTS = PACKAGE / "corpus"
"""Below it lie candidates and a subject: data that the engine runs, not modules of the house."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Module:
    """One file; `name` is its path below the package."""

    name: str
    text: str
    tree: ast.Module


@cache
def modules() -> tuple[Module, ...]:
    """Every Python file of the package, but for the candidates and the subject of the corpus."""
    return tuple(
        _parse(path) for path in sorted(PACKAGE.rglob("*.py")) if path.parent == GUESTS or GUESTS not in path.parents
    )


def _parse(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(name=path.relative_to(PACKAGE).as_posix(), text=text, tree=ast.parse(text))


def functions() -> Iterator[tuple[Module, Function]]:
    """Every function and method, nested ones too."""
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                yield module, node


def lines_of(function: Function) -> int:
    """Lines from `def` to the end, decorators left out."""
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1
