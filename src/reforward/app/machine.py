"""This machine and its software, as far as they can move a number. No torch is imported to find out."""

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from reforward import __version__
from reforward.app.cgroup import cpu_limit, memory_limit
from reforward.domain.target import Machine
from reforward.engine.builds import compiler_version
from reforward.engine.neighbours import cores

ISA_BY_FLAG = (("amx_tile", "amx"), ("avx512f", "avx512"), ("avx2", "avx2"), ("asimd", "neon"))
PACKAGES = ("torch", "numpy")


@cache
def machine() -> Machine:
    """CPU, cores, vector extension, memory, as far as this container may use them; devices are listed by engines."""
    info = _cpuinfo()
    flags = set(info.get("flags", info.get("Features", "")).split())
    isa = next((name for flag, name in ISA_BY_FLAG if flag in flags), "generic")
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = min(installed, memory_limit() or installed)
    return Machine(
        cpu=info.get("model name", platform.processor() or platform.machine()),
        cores=physical_cores(),
        isa=isa,
        memory_gib=round(memory / 2**30),
    )


@cache
def software() -> tuple[str, ...]:
    """`name==version` of interpreter, packages and compiler."""
    found = [f"python=={platform.python_version()}", f"reforward=={__version__}"]
    found += [f"{name}=={_version(name)}" for name in PACKAGES]
    if compiler_version():
        found.append(compiler_version())
    return tuple(found)


@cache
def physical_cores() -> int:
    """Distinct cores among the processors that this process may use (threads of one core count once), within quota."""
    quota = cpu_limit() or cores()
    return max(1, min(cores(), int(quota)))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _cpuinfo() -> dict[str, str]:
    """The first processor's block of /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    block = path.read_text().split("\n\n")[0] if path.is_file() else ""
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}
