"""Measured operators: where the tables of aiconfigurator-core lie, which of them serves a GPU and an engine, read as columns.

The tables are those of `aiconfigurator-core` 0.12.0 (Apache-2.0, NVIDIA): latencies of single kernels by shape, per GPU, engine
and version of the engine.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import Unavailable

PACKAGE = "aiconfigurator_core"
SYSTEMS = {
    "a100": "a100_sxm",
    "l40s": "l40s",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "rtx_pro_6000": "rtx_pro_6000_server",
}
"""GPUs that there are tables for."""
ENGINES = ("vllm", "sglang", "trtllm")
Columns = Mapping[str, NDArray[Any]]


def folder() -> Path | None:
    """The folder of all systems, or None without the package. The package is not imported: it would bring its own estimators."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations))) / "systems" / "data"


def measured(gpu: str) -> bool:
    """Whether operators of this GPU can be looked up here."""
    where = folder()
    return where is not None and gpu in SYSTEMS and (where / SYSTEMS[gpu]).is_dir()


def version_key(text: str) -> tuple[int, ...]:
    """Order of versions such as 0.5.6.post2 and 1.3.0rc20, by their numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


@cache
def find(gpu: str, family: str, name: str, engine: str) -> tuple[tuple[Path, ...], ...]:
    """All versions of this engine's table, newest first; then those of other engines, which run some of the same kernels."""
    where = folder()
    if where is None or gpu not in SYSTEMS:
        return ()
    base = where / SYSTEMS[gpu] / family
    others = [engine, *(one for one in ENGINES if one != engine)]
    found = (base.glob(f"{one}/*/{name}_perf.parquet") for one in others)
    newest = (sorted(paths, key=lambda path: version_key(path.parent.name), reverse=True) for paths in found)
    return tuple(tuple(paths) for paths in newest if paths)


@cache
def read(path: Path, *names: str) -> Columns:
    """These columns of a table, 0 where an old table lacks one; strings as object arrays. Raises `Unavailable` without pyarrow."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise Unavailable("measured operators need pyarrow; pip install 'reforward[plan]'") from error
    reader: Any = parquet
    there: set[str] = set(reader.read_schema(path).names)
    table: Any = reader.read_table(path, columns=[name for name in names if name in there])
    columns: dict[str, NDArray[Any]] = {name: np.asarray(table[name].to_numpy()) for name in names if name in there}
    return {name: columns.get(name, np.zeros(len(table))) for name in names}


def rows(gpu: str, family: str, name: str, engine: str, *names: str) -> Iterator[Columns]:
    """The columns of all versions of one engine's table together, this engine first."""
    for paths in find(gpu, family, name, engine):
        parts = [read(path, *names) for path in paths]
        yield {name: np.concatenate([part[name] for part in parts]) for name in names}
