"""What this machine has, which protections workers get, and a remedy for each thing that is missing."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from reforward.app.config import Config
from reforward.app.machine import machine
from reforward.domain.errors import ReforwardError
from reforward.engine.builds import compiler_version
from reforward.engine.probe import Protections, protections
from reforward.ledger.migrations import MIGRATIONS
from reforward.ledger.store import SqlLedger
from reforward.models import smollm2

NAMESPACES = "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1; in a container, a profile that lets unshare pass)"
MOUNTS = f"{NAMESPACES}, and mounts inside them"
REMEDIES = {
    "pid namespace": NAMESPACES,
    "mount namespace": NAMESPACES,
    "net namespace": NAMESPACES,
    "ipc namespace": NAMESPACES,
    "read-only weights": MOUNTS,
    "own /proc": MOUNTS,
    "own scratch": MOUNTS,
    "process bound": "root's processes are bounded since Linux 6.14; before it, run as an ordinary user",
    "landlock": "needs Linux 5.13, and landlock in the kernel's list of security modules (boot with lsm=landlock,...)",
    "seccomp": "needs a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
}
"""Protections of a worker that a machine may refuse, and what brings them."""
FREE_BYTES = 2 << 30


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the doctor."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    required: bool = True
    """False: reforward works without it, less well."""


def examine(config: Config) -> tuple[Check, ...]:
    """All checks, cheap ones first; takes a few seconds, since protections are tried for real."""
    return (
        _python(),
        _torch(),
        _machine(config),
        _space(config),
        _ledger(config),
        _compiler(),
        _weights(),
        *_engine(),
        _extra("transformers", "benchmarks compare with it", "pip install -e '.[bench]'"),
        _extra("llama_cpp", "benchmarks compare with it", "pip install -e '.[llamacpp]' (builds for some minutes)"),
    )


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check(name="python", ok=sys.version_info >= (3, 11), detail=version, remedy="install Python 3.11 or newer")


def _torch() -> Check:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Check(name="torch", ok=False, detail="not installed", remedy="pip install torch==2.13.0")
    return Check(name="torch", ok=True, detail=version)


def _machine(config: Config) -> Check:
    about = machine()
    devices = ", ".join(about.devices) or "no accelerator in use"
    cores = f"{about.cores} cores ({config.threads} threads used)"
    detail = f"{about.cpu}, {cores}, {about.isa}, {about.memory_gib} GiB; {devices}"
    return Check(name="machine", ok=about.memory_gib >= 4, detail=detail, remedy="4 GiB of memory are needed")


def _space(config: Config) -> Check:
    try:
        config.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=config.cache):
            free = shutil.disk_usage(config.cache).free
    except OSError as error:
        return Check(name="cache", ok=False, detail=str(error), remedy="set REFORWARD_CACHE to a folder you can write")
    return Check(
        name="cache",
        ok=free >= FREE_BYTES,
        detail=f"{config.cache}, {free >> 30} GiB free",
        remedy=f"free {FREE_BYTES >> 30} GiB or set REFORWARD_CACHE to another disk",
    )


def _ledger(config: Config) -> Check:
    try:
        SqlLedger(config.ledger, config.blobs)
    except ReforwardError as error:
        return Check(name="ledger", ok=False, detail=str(error), remedy="set REFORWARD_HOME to another folder")
    return Check(name="ledger", ok=True, detail=f"{config.ledger}, schema {len(MIGRATIONS)}")


def _compiler() -> Check:
    version = compiler_version()
    return Check(
        name="C++ compiler",
        ok=bool(version),
        detail=version or "no g++",
        remedy="apt install g++ (native passes are skipped without it)",
        required=False,
    )


def _weights() -> Check:
    try:
        path: Path = smollm2.find_gguf()
    except ReforwardError:
        return Check(name="SmolLM2 weights", ok=False, detail="not installed", remedy=smollm2.REMEDY, required=False)
    return Check(name="SmolLM2 weights", ok=True, detail=path.name)


def _engine() -> tuple[Check, ...]:
    """What only trying tells: a child is confined as a worker is, on pages as the vault makes them."""
    try:
        found = protections()
    except (ReforwardError, subprocess.SubprocessError) as error:
        remedy = "run `python -m reforward.engine.probe` to see why"
        return (Check(name="worker protections", ok=False, detail=str(error), remedy=remedy),)
    return (_huge_pages(found), _sandbox(found))


def _huge_pages(found: Protections) -> Check:
    return Check(
        name="huge pages",
        ok=found.pages == "huge",
        detail=f"weights lie on {found.pages} pages",
        remedy="needs a kernel with transparent huge pages on tmpfs; 4 KiB pages read up to a fifth slower",
        required=False,
    )


def _sandbox(found: Protections) -> Check:
    missing = [name for name in REMEDIES if name not in found.active]
    detail = ", ".join(found.active) or "none"
    if missing:
        detail += f"; missing: {', '.join(missing)}"
    remedy = "; ".join(dict.fromkeys(REMEDIES[name] for name in missing))
    return Check(name="worker protections", ok=not missing, detail=detail, remedy=remedy, required=False)


def _extra(package: str, use: str, remedy: str) -> Check:
    there = importlib.util.find_spec(package) is not None
    detail = f"installed; {use}" if there else f"not installed; {use}"
    return Check(name=package, ok=there, detail=detail, remedy=remedy, required=False)
