"""An accelerator by its datasheet: memory, bandwidth, arithmetic, links, and how many of them reach one another."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from reforward.domain.errors import BadInput
from reforward.plan.dtypes import ARITHMETIC

PACKAGED = Path(__file__).parent / "gpus.toml"
Topology = Literal["switch", "mesh", "torus", "pcie"]
TOPOLOGIES = ("switch", "mesh", "torus", "pcie")
SUFFIXES = ("_sxm", "_server", "_nvl72")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Dense peaks in flop/s, bandwidths in bytes/s per GPU and one direction, memory in bytes."""

    name: str
    title: str
    vendor: str
    memory: int
    """What the driver gives a process."""
    bandwidth: float
    flops: Mapping[str, float]
    """By arithmetic: bf16, fp8, fp4, int8. What is missing runs as the next wider that is there."""
    link: float
    """To the others of the scale-up domain."""
    scale_out: float
    """To GPUs outside of it."""
    scale_up: int
    """GPUs that reach one another over `link`."""
    node: int
    """GPUs of one host."""
    topology: Topology
    power: float = 0.0
    """Watts."""

    @classmethod
    def read(cls, name: str) -> "Gpu":
        """A packaged GPU, such as `h200`. Raises `BadInput` that lists near names."""
        wanted = name.lower().replace("-", "_").replace(" ", "_")
        for suffix in SUFFIXES:
            wanted = wanted.removesuffix(suffix)
        known = packaged()
        if wanted not in known:
            near = get_close_matches(wanted, known, n=3) or sorted(known)
            raise BadInput(f"GPU {name!r} is not known; near it: {', '.join(near)}; or describe it: --gpu-spec FILE")
        return known[wanted]

    @classmethod
    def read_file(cls, path: Path) -> "Gpu":
        """The GPU that a TOML file describes with the fields of this class; `[name]` is its only table."""
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(f"GPU description {path} cannot be read: {error}") from error
        if len(tables) != 1 or not all(isinstance(one, dict) for one in tables.values()):
            raise BadInput(f"GPU description {path} must hold one table such as [my_gpu], found {sorted(tables)}")
        return _made(*next(iter(tables.items())))

    def flops_of(self, dtype: str) -> float:
        """Dense peak for matrices of this format; the widest that is there if the GPU lacks the format."""
        wanted = ARITHMETIC[dtype]
        order = ("fp4", "fp8", "bf16") if wanted != "int8" else ("int8", "bf16")
        usable = order[order.index(wanted) :]
        return next(self.flops[one] for one in usable if one in self.flops)


@cache
def packaged() -> dict[str, Gpu]:
    """All packaged GPUs by name."""
    tables = tomllib.loads(PACKAGED.read_text(encoding="utf-8"))
    return {name: _made(name, table) for name, table in tables.items()}


def _made(name: str, table: Mapping[str, Any]) -> Gpu:
    known = {one.name for one in fields(Gpu)} - {"name"}
    missing = sorted(known - {"power"} - set(table))
    if missing or set(table) - known:
        raise BadInput(
            f"GPU {name!r}: missing {missing or 'nothing'}, not known {sorted(set(table) - known) or 'nothing'}; "
            f"its fields are {', '.join(sorted(known))}"
        )
    for field in ("memory", "bandwidth", "link", "scale_out", "scale_up", "node"):
        value = table[field]
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise BadInput(f"GPU {name!r}: {field} must be a positive number, got {value!r}")
    _check_flops(name, table["flops"])
    if table["topology"] not in TOPOLOGIES:
        raise BadInput(f"GPU {name!r}: topology must be one of {', '.join(TOPOLOGIES)}, got {table['topology']!r}")
    return Gpu(name=name, **dict(table))


def _check_flops(name: str, flops: object) -> None:
    if not isinstance(flops, dict) or "bf16" not in flops:
        raise BadInput(f"GPU {name!r}: flops must be a table with at least bf16 (flop/s, dense), got {flops!r}")
    found = cast(dict[str, object], flops)
    if wrong := {key: value for key, value in found.items() if not isinstance(value, int | float) or value <= 0}:
        raise BadInput(f"GPU {name!r}: flops must be positive numbers, got {wrong}")
