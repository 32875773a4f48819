"""Candidates on disk: read a folder into one, export one as a drop-in folder."""

from pathlib import Path

from reforward.domain.candidate import MAX_BYTES, Candidate, SourceFile
from reforward.domain.errors import BadInput

_LEFT_OUT = {"__pycache__", ".git", ".venv"}
EVIDENCE = "EVIDENCE.md"
_BEGIN, _END = "# --- evidence, written by reforward export ---\n", "# --- end of evidence ---\n\n"


def read_tree(folder: Path, like: Candidate) -> Candidate:
    """The folder's text files as a candidate with the host and entry of `like`.

    A tree may hold only the files that it changes: `like`'s other files are not added, except when the entry itself
    is missing, which is an error. Symlinks, binaries and oversized files are refused by name.
    """
    files = read_files(folder)
    if like.entry_file not in [file.path for file in files]:
        raise BadInput(f"{str(folder)!r} has no {like.entry_file}; it must export {like.entry_name}")
    return Candidate(host=like.host, entry=like.entry, files=files)


def read_files(folder: Path) -> tuple[SourceFile, ...]:
    """The folder's text files by path; `BadInput` if it is none, is empty, or holds what no candidate may hold."""
    if not folder.is_dir():
        raise BadInput(f"{str(folder)!r} is not a folder; pass the folder that holds the candidate's source files")
    files = tuple(_source(folder, path) for path in _files(folder))
    if not files:
        raise BadInput(f"{str(folder)!r} is empty; put the candidate's source files into it")
    return tuple(sorted(files, key=lambda file: file.path))


def _files(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if not _LEFT_OUT & set(path.relative_to(folder).parts))
    return sorted(path for path in found if (path.is_symlink() or not path.is_dir()) and path.name != EVIDENCE)


def _source(folder: Path, path: Path) -> SourceFile:
    name = path.relative_to(folder).as_posix()
    if path.is_symlink() or not path.is_file():
        raise BadInput(f"{name!r} is a link or no plain file; a candidate holds plain text files only")
    if path.stat().st_size > MAX_BYTES:
        raise BadInput(f"{name!r} has {path.stat().st_size:,} bytes; a whole candidate may hold {MAX_BYTES:,}")
    try:
        return SourceFile(path=name, text=_without_header(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:
        raise BadInput(f"{name!r} is not UTF-8 text ({error}); build binaries in the tree's build.py instead") from None


def write_tree(candidate: Candidate, folder: Path, evidence: str) -> tuple[Path, ...]:
    """Write the candidate's files into a new or empty folder, with the evidence on top of the entry and beside it."""
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{str(folder)!r} is not empty; choose a new folder, nothing was written")
    written: list[Path] = []
    for file in candidate.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_header(evidence) + file.text if file.path == candidate.entry_file else file.text)
        written.append(path)
    (folder / EVIDENCE).write_text(evidence)
    return (*written, folder / EVIDENCE)


def _header(evidence: str) -> str:
    return _BEGIN + "".join(f"# {line}".rstrip() + "\n" for line in evidence.splitlines()) + _END


def _without_header(text: str) -> str:
    """An exported tree reads back as the candidate it was: the header is about it, not part of it."""
    return text.partition(_END)[2] if text.startswith(_BEGIN) and _END in text else text
