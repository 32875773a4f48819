"""The build stage: a tree's `build.py` runs confined into an empty folder; a trusted step publishes it under a hash, read-only.

The hash covers the sources, the machine's vector extension, and the versions of compiler and torch, so that no old build can
serve a new tree. A published folder is never written again, and no worker writes a folder that another reads.
"""

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed, Unavailable
from reforward.domain.record import HASH_BYTES
from reforward.domain.target import Machine
from reforward.engine.leftovers import own_folder

BUILD_FILE = "build.py"
MOST_FILES, MOST_BYTES, MOST_DEPTH = 4096, 2 << 30, 16
"""Of what one build may leave."""


@dataclass(frozen=True, kw_only=True)
class Artifacts:
    """Where a build lies, and the seconds it took now (0 if it was there already)."""

    folder: str
    seconds: float


@cache
def compiler_version() -> str:
    """First line of `g++ --version`; empty if there is no g++."""
    if shutil.which("g++") is None:
        return ""
    found = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=False)
    return found.stdout.splitlines()[0] if found.returncode == 0 else ""


class Builds:
    """The cache of published builds below one folder."""

    def __init__(self, folder: Path, machine: Machine, software: tuple[str, ...]) -> None:
        self.folder, self.machine, self.software = folder, machine, software

    def key(self, candidate: Candidate) -> str:
        """Hash of everything that a build depends on."""
        parts = (
            candidate.id,
            self.machine.cpu,
            self.machine.isa,
            *self.machine.devices,
            *self.software,
            compiler_version(),
        )
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=HASH_BYTES).hexdigest()

    def ensure(self, candidate: Candidate, run: Callable[[Candidate, Path], None]) -> Artifacts:
        """The candidate's artifacts, built by `run(candidate, out)` if they are not there; nothing if it has no build."""
        if candidate.text_of(BUILD_FILE) is None:
            return Artifacts(folder="", seconds=0.0)
        final = self.folder / self.key(candidate)
        if final.is_dir():
            return Artifacts(folder=str(final), seconds=0.0)
        begun = time.perf_counter()
        with own_folder(self.folder, ".build-") as work:
            run(candidate, work)
            try:
                publish(work, final)
            except OSError as error:  # names or folders that cannot be handled are the build's own
                raise CandidateFailed("build", f"what build.py made cannot be published: {error.strerror}") from None
        return Artifacts(folder=str(final), seconds=time.perf_counter() - begun)


def publish(work: Path, final: Path) -> None:
    """Check what a build wrote, make it read-only, and give it its name in one step."""
    total = 0
    for count, (path, depth) in enumerate(_walk(work, 1)):
        name = str(path.relative_to(work))
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise CandidateFailed("build", f"build.py made {name!r}, which is no plain file or folder")
        total += path.lstat().st_size
        if count >= MOST_FILES or depth > MOST_DEPTH or total > MOST_BYTES:
            limits = f"{MOST_FILES} files, {MOST_BYTES:,} bytes and {MOST_DEPTH} folders deep"
            raise CandidateFailed("build", f"build.py made more than {limits}")
        path.chmod(0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444)
    work.chmod(0o755)
    with suppress(OSError):
        work.rename(final)
    if not final.is_dir():
        raise Unavailable(f"cannot give the build its place {final}; check rights and free disk")


def _walk(folder: Path, depth: int) -> Iterator[tuple[Path, int]]:
    """Everything below, a folder before what is in it; whoever stops asking goes no deeper."""
    for path in folder.iterdir():
        yield path, depth
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, depth + 1)
