"""A rewrite of the forward pass, and who proposed it."""

import re
from dataclasses import dataclass
from typing import ClassVar

from reforward.domain.errors import BadInput
from reforward.domain.record import Record, refuse_half_characters
from reforward.domain.subject import Host

MAX_FILES = 64
MAX_BYTES = 2_000_000
_SAFE_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One text file of a candidate; `path` is relative, with forward slashes and no dots at the front."""

    path: str
    text: str

    def __post_init__(self) -> None:
        if not _SAFE_PATH.fullmatch(self.path):
            raise BadInput(f"source path {self.path!r} is not a plain relative path; rename the file")
        refuse_half_characters(self.path, self.text)


@dataclass(frozen=True, kw_only=True)
class Candidate(Record):
    """A small source tree and its entry point. The same code proposed twice is one candidate."""

    tag: ClassVar[str] = "candidate"

    host: Host
    entry: str
    """`file.py:Name`: lm `forward.py:Forward`; module: the file and class that are rewritten."""
    files: tuple[SourceFile, ...]
    """Sorted by path. A `build.py` among them is run by the build stage (see `engine/build.py`)."""

    def __post_init__(self) -> None:
        paths = [file.path for file in self.files]
        if paths != sorted(set(paths)):
            raise BadInput(f"files of a candidate must be sorted by path and unique, got {paths}")
        if not paths:
            raise BadInput("a candidate needs at least one file; the source tree is empty")
        if len(paths) > MAX_FILES or sum(len(file.text.encode()) for file in self.files) > MAX_BYTES:
            raise BadInput(f"a candidate may hold {MAX_FILES} files and {MAX_BYTES:,} bytes; make the tree smaller")
        if self.entry_file not in paths:
            raise BadInput(f"entry {self.entry!r} names {self.entry_file!r}, which is not in the tree: {paths}")

    @property
    def entry_file(self) -> str:
        """Path of the file that holds the entry point."""
        return self.entry.partition(":")[0]

    @property
    def entry_name(self) -> str:
        """Name that the entry file must export."""
        return self.entry.partition(":")[2]

    def text_of(self, path: str) -> str | None:
        """The text of one file, or None if the tree has no such path."""
        return next((file.text for file in self.files if file.path == path), None)

    def with_files(self, changed: dict[str, str]) -> "Candidate":
        """A new candidate with `changed` files added or replaced."""
        texts = {file.path: file.text for file in self.files} | changed
        files = tuple(SourceFile(path=path, text=texts[path]) for path in sorted(texts))
        return Candidate(host=self.host, entry=self.entry, files=files)


@dataclass(frozen=True, kw_only=True)
class Proposal(Record):
    """Who proposed a candidate, from which parent, and why: about it, outside its identity."""

    tag: ClassVar[str] = "proposal"

    run: str
    candidate: str
    parent: str
    author: str
    reason: str
    order: int
    """Position in its run, from 0."""


@dataclass(frozen=True, kw_only=True)
class Skipped(Record):
    """A proposal that could not be made on this machine, with the remedy. Nothing is dropped silently."""

    tag: ClassVar[str] = "skipped"

    run: str
    author: str
    what: str
    remedy: str
