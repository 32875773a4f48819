"""The tools of a language model at work: a tree of its own in its folder, notes, and the door."""

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from reforward.domain.candidate import MAX_BYTES, MAX_FILES, SourceFile
from reforward.domain.errors import BadInput, ReforwardError
from reforward.domain.job import Kind
from reforward.propose import library
from reforward.propose.guest import Guest
from reforward.propose.knock import PATHS, finished, knock

MOST_SHOWN = 40_000
"""Characters of a file that one call shows."""


class Bench:
    """Each public method but `tools` is a tool. What goes wrong is an answer, `{"error": ...}`, so that the work goes on."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.files = {file.path: file.text for file in guest.tree.files}

    def tools(self) -> list[Callable[..., Any]]:
        """In the order in which they are offered."""
        made = (
            self.list_files, self.read_file, self.write_file, self.replace, self.delete_file, self.measure, self.profile,
            self.submit, self.read_source, self.read_library, self.search_library, self.history, self.status, self.diff,
            self.note,
        )  # fmt: skip
        return [_told(tool) for tool in made]

    def list_files(self) -> dict[str, Any]:
        """Files of your tree with their lines. It begins as the incumbent's."""
        return {path: len(text.splitlines()) for path, text in sorted(self.files.items())}

    def read_file(self, path: str, first: int = 1, count: int = 2000) -> dict[str, Any]:
        """Lines of a file of your tree."""
        lines = self._text(path).splitlines(keepends=True)
        return {"lines": len(lines), "text": _part(lines, first, count)}

    def write_file(self, path: str, text: str) -> dict[str, Any]:
        """Write a whole file of your tree, new or not."""
        SourceFile(path=path, text=text)
        after = self.files | {path: text}
        if len(after) > MAX_FILES or sum(len(each.encode()) for each in after.values()) > MAX_BYTES:
            raise BadInput(f"a tree may hold {MAX_FILES} files and {MAX_BYTES:,} bytes; make it smaller")
        self.files = after
        target = self.guest.folder / "source" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return {"written": path, "lines": len(text.splitlines())}

    def replace(self, path: str, old: str, new: str) -> dict[str, Any]:
        """Replace a piece of text that occurs exactly once in a file of your tree."""
        text = self._text(path)
        if text.count(old) != 1:
            raise BadInput(
                f"this text occurs {text.count(old)} times in {path!r}, not once; quote more lines around it"
            )
        return self.write_file(path, text.replace(old, new))

    def delete_file(self, path: str) -> dict[str, Any]:
        """Take a file out of your tree."""
        self._text(path)
        del self.files[path]
        (self.guest.folder / "source" / path).unlink()
        return {"deleted": path}

    def measure(self, repeat: int = 0) -> dict[str, Any]:
        """Time your tree against the incumbent at the fast tier; seconds. A higher `repeat` measures the same tree once more."""
        return self._job("measure", repeat=repeat)

    def profile(self) -> dict[str, Any]:
        """Which operations a pass of your tree spends its time in."""
        return self._job("profile")

    def submit(self, reason: str) -> dict[str, Any]:
        """Take your tree to a verdict, on the whole model and held-out traffic. Say in `reason` why it is faster."""
        return self._job("submit", reason=reason)

    def read_source(self, of: str = "incumbent", path: str = "", first: int = 1, count: int = 2000) -> dict[str, Any]:
        """Lines of a file of 'stock', 'incumbent', a candidate id, or 'contract' (what a candidate must export)."""
        return self._read("source", {"of": of, "path": path, "first": first, "count": count})

    def read_library(self, path: str, first: int = 1, count: int = 400) -> dict[str, Any]:
        """Lines of a source of what a forward calls: `torch/...`, `transformers/...`, `triton/...`, as installed here."""
        lines = library.lines(path)
        return {"lines": len(lines), "text": _part(lines, first, count)}

    def search_library(self, text: str, below: str = "torch/nn") -> dict[str, Any]:
        """Lines of those sources that hold a text, in a package or a folder of it."""
        return {"found": library.search(text, below)}

    def history(self, limit: int = 30) -> dict[str, Any]:
        """What was tried in this run, by all authors."""
        return self._read("history", {"limit": limit})

    def status(self) -> dict[str, Any]:
        """Where the run stands."""
        return self._read("status", {})

    def diff(self, a: str = "incumbent", b: str = "stock") -> dict[str, Any]:
        """Unified diff from candidate b to candidate a."""
        return self._read("diff", {"a": a, "b": b})

    def note(self, text: str) -> dict[str, Any]:
        """Append to your notes; answers with all of them."""
        notes = self.guest.folder / "notes" / "notes.md"
        with notes.open("a", encoding="utf-8") as file:
            file.write(f"{text.rstrip()}\n")
        return {"notes": notes.read_text(encoding="utf-8")[-MOST_SHOWN:]}

    def _job(self, kind: Kind, **order: Any) -> dict[str, Any]:
        return finished(self.guest.door, knock(f"{self.guest.door}/{PATHS[kind]}", {"files": self.files, **order}))

    def _read(self, what: str, query: dict[str, Any]) -> dict[str, Any]:
        return knock(f"{self.guest.door}/{what}?{urlencode(query)}")

    def _text(self, path: str) -> str:
        if path not in self.files:
            raise BadInput(f"your tree has no file {path!r}; it has {', '.join(sorted(self.files))}")
        return self.files[path]


def _part(lines: list[str], first: int, count: int) -> str:
    return "".join(lines[max(0, first - 1) : max(0, first - 1) + count])[:MOST_SHOWN]


def _told(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @functools.wraps(tool)
    def call(*words: Any, **named: Any) -> dict[str, Any]:
        try:
            return tool(*words, **named)
        except ReforwardError as error:
            return {"error": str(error)}

    return call
