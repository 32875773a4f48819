"""`reforward plan probe`: operators of this machine, timed in a process of its own, for the planner."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reforward.app.config import load_config
from reforward.domain.errors import BadInput
from reforward.engine.program import told_by
from reforward.plan.gpu import Gpu
from reforward.plan.probe import Family, Probed, Row, compared, described, factors

TIMEOUT_S = 900


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was measured, and what it means for the planner."""

    probed: Probed
    families: tuple[Family, ...]
    """Against the planner's times for a named GPU; empty without a name."""
    factors: Mapping[str, float]
    spec: str
    """The machine as a file for --gpu-spec."""


def probe(gpu: str | None) -> Found:
    """Measure now; `gpu` names what this machine should be like."""
    config = load_config()
    device = "cuda" if config.device.startswith("cuda") else "cpu"
    known = Gpu.read(gpu) if gpu else None
    told = told_by("reforward.engine.microbench", device, str(config.threads), timeout_s=TIMEOUT_S)
    probed = Probed(
        device=told["device"],
        memory=told["memory"],
        count=told["count"],
        rows=tuple(Row(**row) for row in told["rows"]),
    )
    families = compared(probed, known, "vllm") if known else ()
    memory = probed.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Found(probed=probed, families=families, factors=factors(families), spec=described(probed, memory))


def keep(found: Found, path: Path) -> None:
    """`.toml`: for --gpu-spec. `.json`: factors for --calibration, with all rows."""
    if path.suffix == ".toml":
        path.write_text(found.spec, encoding="utf-8")
    elif path.suffix == ".json" and found.factors:
        rows = [{**vars(row), "sizes": dict(row.sizes)} for row in found.probed.rows]
        path.write_text(
            json.dumps({"factors": dict(found.factors), "device": found.probed.device, "rows": rows}) + "\n"
        )
    elif path.suffix == ".json":
        raise BadInput("factors are relative to a GPU that the planner knows; say which with --gpu, or write a .toml")
    else:
        raise BadInput(
            f"cannot write a probe as {path.suffix!r}; end the name in .toml (--gpu-spec) or .json (--calibration)"
        )
