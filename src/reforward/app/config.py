"""Where things lie and how many threads: defaults, then `reforward.toml`, then the environment, then arguments.

The only file that reads environment variables. Unknown keys are errors.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reforward.app.machine import physical_cores
from reforward.domain.errors import BadInput

FILE = Path("reforward.toml")
PREFIX = "REFORWARD_"
MOST_THREADS = 1024
KEYS = {"home": Path, "cache": Path, "threads": int, "device": str, "door": str, "api_key": str}
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Complete: every value is chosen."""

    home: Path
    """Ledger and blobs."""
    cache: Path
    """Converted weights and builds; safe to delete."""
    threads: int
    """Of every worker."""
    device: str = "cpu"
    """Where language models run: `cpu`, or `cuda` for the first NVIDIA GPU."""
    door: str = ""
    """Address of a run that is open elsewhere, for `reforward ask`."""
    api_key: str = ""
    """Asked of clients of `reforward serve` if not empty."""

    @property
    def ledger(self) -> Path:
        """The SQLite file."""
        return self.home / "ledger.db"

    @property
    def blobs(self) -> Path:
        """Folder of content-addressed files."""
        return self.home / "blobs"


def load_config(*, threads: int | None = None) -> Config:
    """Merge the layers; `BadInput` names an unknown key or a value that does not fit."""
    values: dict[str, Any] = {"home": _data_home() / "reforward", "cache": _cache_home() / "reforward"}
    values |= _from_file(FILE) | _from_environment(os.environ)
    if threads is not None:
        values["threads"] = _threads(threads, "--threads")
    values.setdefault("threads", physical_cores())
    return Config(**values)


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return _checked(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found = {name.removeprefix(PREFIX).lower(): text for name, text in environment.items() if name.startswith(PREFIX)}
    return _checked(found, "environment")


def _checked(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    unknown = sorted(set(found) - set(KEYS))
    if unknown:
        raise BadInput(f"{where}: unknown setting {unknown[0]!r}; known are {', '.join(KEYS)}")
    return {key: _cast(key, value, where) for key, value in found.items()}


def _cast(key: str, value: Any, where: str) -> Any:
    if key in WORDS:
        return WORDS[key](value, where)
    return _folder(key, value, where) if KEYS[key] is Path else _threads(value, where)


def _folder(key: str, value: Any, where: str) -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise BadInput(f"{where}: {key}={value!r} is no path of a folder")
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{where}: {key}={value!r} names nobody's home folder: {error}") from None


def _threads(value: Any, where: str) -> int:
    """A whole number; text is read as one, a float or a boolean is not."""
    try:
        count = value if type(value) is int else int(value) if isinstance(value, str) else 0
    except ValueError:
        count = 0
    if not 1 <= count <= MOST_THREADS:
        raise BadInput(f"{where}: threads={value!r} is no whole number from 1 to {MOST_THREADS}")
    return count


def _device(value: Any, where: str) -> str:
    if value not in DEVICES:
        raise BadInput(f"{where}: device={value!r} is not known; known are {', '.join(DEVICES)}")
    return value


def _door(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        raise BadInput(f"{where}: door={value!r} is no address; it looks like http://127.0.0.1:PORT/KEY")
    return value


def _api_key(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise BadInput(f"{where}: api_key is no text of printable ASCII characters without spaces")
    return value


WORDS: dict[str, Callable[[Any, str], str]] = {"device": _device, "door": _door, "api_key": _api_key}
"""How a setting that is a text is read."""


def environment() -> dict[str, str]:
    """What a program that we start for somebody finds around it."""
    return dict(os.environ)


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
