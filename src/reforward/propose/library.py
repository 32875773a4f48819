"""Reading of what a forward calls: the sources of installed packages, without importing any."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from reforward.domain.errors import BadInput

PACKAGES = ("torch", "transformers", "triton")
ENDINGS = (".py", ".h", ".cuh", ".cpp", ".cu")
MOST_FOUND, MOST_LINE, MOST_FILE = 60, 200, 2_000_000
"""Lines of a search, characters of a line, bytes of a file that is looked into."""


def lines(path: str) -> list[str]:
    """Of the file `package/...`; `BadInput` if it is none of these packages or no source."""
    folder, file = _root(path.partition("/")[0]), None
    if folder is not None:
        file = (folder.parent / path).resolve()
    if folder is None or file is None or not file.is_relative_to(folder) or not file.is_file():
        raise BadInput(f"there is no file {path!r}; paths look like torch/nn/functional.py, of {_installed()}")
    if file.suffix not in ENDINGS or file.stat().st_size > MOST_FILE:
        raise BadInput(f"{path!r} is no source that can be shown; sources end in {', '.join(ENDINGS)}")
    return file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)


def search(text: str, below: str) -> list[str]:
    """Lines `path:number: text` that hold a text, in files below `package` or `package/folder`.

    No regular expression: one that never ends would hold the whole process.
    """
    root = _root(below.partition("/")[0])
    if root is None or not (root.parent / below).resolve().is_relative_to(root):
        raise BadInput(f"{below!r} is not below an installed package; there are {_installed()}")
    found: list[str] = []
    for file in _files(root.parent / below):
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if text in line:
                found.append(f"{file.relative_to(root.parent)}:{number}: {line.strip()[:MOST_LINE]}")
                if len(found) >= MOST_FOUND:
                    return found
    return found


def _root(package: str) -> Path | None:
    spec = find_spec(package) if package in PACKAGES else None
    return Path(spec.origin).parent.resolve() if spec and spec.origin else None


def _files(below: Path) -> Iterator[Path]:
    whole = [below] if below.is_file() else sorted(below.rglob("*"))
    return (file for file in whole if file.suffix in ENDINGS and file.is_file() and file.stat().st_size <= MOST_FILE)


def _installed() -> str:
    return ", ".join(package for package in PACKAGES if _root(package)) or "none"
