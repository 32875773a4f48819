"""Source tree to object: write a candidate's files into a folder of its own, import the entry, hash what was executed."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import CandidateFailed
from reforward.domain.subject import Host
from reforward.runtime import overlay

LM_CALLS = {"state": 3, "__init__": 2, "step": 3}
"""Methods of a `Forward` and how many positional arguments each is called with, `self` included where it has one."""
LM_OPTIONAL_CALLS = {"run": 8, "pack": 2, "copy": 4}
RESERVED = sys.stdlib_module_names | {"torch", "numpy", "reforward"}
"""Names that a file at the top of a tree may not take."""


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write the tree below `folder`, which must be the candidate's own."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def load_entry(files: Mapping[str, str], entry: str, folder: Path) -> Any:
    """The class `file.py:Name` of a tree written to `folder`; its siblings can be imported by their plain names."""
    found = _load(files, entry, folder)
    if not isinstance(found, type):
        raise CandidateFailed("load", f"{entry} is a {type(found).__name__}, not a class")
    return found


def load_overlay(files: Mapping[str, str], entry: str, folder: Path, *, beside: str) -> type:
    """The class `pkg/file.py:Name` of a tree that stands in front of installed packages and of the folder of `beside`."""
    for file, text in files.items():
        if file.endswith(".py"):
            _check_syntax(file, text)
    write_files(files, folder)
    if beside.partition(":")[0].endswith(".py"):
        sys.path.insert(0, str(Path(beside.partition(":")[0]).parent))
    overlay.install(files, folder)
    path, _, name = entry.partition(":")
    module = _guarded(folder, path, lambda: importlib.import_module(overlay.module_name(path)))
    found = getattr(module, name, None)
    if not isinstance(found, type):
        raise CandidateFailed("load", f"{path} exports no class {name!r}")
    return found


def load_function(files: Mapping[str, str], entry: str, folder: Path) -> Any:
    """The function `file.py:name` of a tree, as `load_entry` does for a class."""
    found = _load(files, entry, folder)
    if not callable(found):
        raise CandidateFailed("load", f"{entry} is a {type(found).__name__}, not a function")
    return found


def _load(files: Mapping[str, str], entry: str, folder: Path) -> Any:
    path, _, name = entry.partition(":")
    for file, text in files.items():
        if file.partition("/")[0].removesuffix(".py") in RESERVED:
            raise CandidateFailed("source", f"{file} would hide a module of that name; rename it")
        if file.endswith(".py"):
            _check_syntax(file, text)
    write_files(files, folder)
    sys.path.insert(0, str(folder))
    module = _import(folder, path)
    if not hasattr(module, name):
        raise CandidateFailed("load", f"{path} exports no {name!r}")
    return getattr(module, name)


def load_forward(files: Mapping[str, str], entry: str, folder: Path) -> Any:
    """`load_entry` for the `lm` host: the class must have the methods of `runtime/forward.py`."""
    found = load_entry(files, entry, folder)
    for method, count in (LM_CALLS | LM_OPTIONAL_CALLS).items():
        exported = getattr(found, method, None)
        if exported is None and method in LM_OPTIONAL_CALLS:
            continue
        if not callable(exported):
            raise CandidateFailed("load", f"{entry} has no method {method}; see reforward/runtime/forward.py")
        if not _takes(exported, count):
            shown = f"{method}{inspect.signature(exported)}"
            raise CandidateFailed("load", f"{entry}: {shown} cannot be called as reforward/runtime/forward.py says")
    return found


def _takes(function: Any, count: int) -> bool:
    """Whether `count` positional arguments can be passed."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


def watermark(files: Mapping[str, str], entry: str, host: Host, folder: Path) -> str:
    """The candidate's id computed again from the files as they lie in `folder` after the import."""
    read = tuple(SourceFile(path=path, text=(folder / path).read_text(encoding="utf-8")) for path in sorted(files))
    return Candidate(host=host, entry=entry, files=read).id


def _check_syntax(file: str, text: str) -> None:
    try:
        compile(text, file, "exec", dont_inherit=True)
    except (
        SyntaxError,
        ValueError,
        RecursionError,
        MemoryError,
    ) as error:  # the last two: expressions too deep to parse
        raise CandidateFailed("source", _misspelt(file, error)) from None


def _misspelt(file: str, error: Exception) -> str:
    """What does not compile, its place named once."""
    if not isinstance(error, SyntaxError):
        return f"{file}: {str(error) or type(error).__name__}"
    shown = f": {error.text.strip()}" if error.text else ""
    return f"{file}, line {error.lineno}: {type(error).__name__}: {error.msg}{shown}"


def _import(folder: Path, shown: str) -> ModuleType:
    package = ".".join(Path(shown).with_suffix("").parts)
    if len(Path(shown).parts) > 1:
        return _guarded(folder, shown, lambda: importlib.import_module(package))
    spec = importlib.util.spec_from_file_location(package, folder / shown)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[package] = module
    loader = spec.loader
    _guarded(folder, shown, lambda: loader.exec_module(module))
    return module


def _guarded(folder: Path, shown: str, run: Any) -> Any:
    """Whatever the candidate's top level raises is its own failure, with the traceback as its log."""
    try:
        return run()
    except Exception as error:  # noqa: BLE001 - candidate code runs here; becomes a record
        reason = f"importing {shown} raised {type(error).__name__}: {error}{place(error, folder)}"
        raise CandidateFailed("load", reason, traceback.format_exc()) from None


def place(error: BaseException, folder: Path) -> str:
    """` (file.py, line 7: source)` of the last frame of `error` whose code lies below `folder`; empty if there is none."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(folder)
    ]
    if not frames:
        return ""
    last = frames[-1]
    return f" ({Path(last.filename).relative_to(folder).as_posix()}, line {last.lineno}: {last.line})"
