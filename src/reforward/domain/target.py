"""What a number is comparable within: `Machine`, `Launch`, `Target`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from reforward.domain.record import Record

PageKind = Literal["huge", "4k"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The hardware, as far as it can move a number."""

    cpu: str
    cores: int
    isa: str
    """Widest vector extension: amx, avx512, avx2, neon or generic."""
    memory_gib: int
    devices: tuple[str, ...] = ()
    """Accelerators by name, in device order."""

    @property
    def words(self) -> str:
        """`a processor, 2 cores, avx512`."""
        return f"{self.cpu}, {self.cores} cores, {self.isa}"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Settings that are equal for all arms of a session."""

    threads: int
    pages: PageKind
    """Kind of page that backs the weights."""
    device: str = "cpu"
    spins: int = 0
    """Turns that an idle OpenMP thread waits busily before it sleeps (`GOMP_SPINCOUNT`)."""
    sandbox: tuple[str, ...] = ()
    """Protections that are active for workers on this machine."""

    @property
    def words(self) -> str:
        """`2 threads, huge pages`."""
        return f"{self.threads} thread{'s' * (self.threads != 1)}, {self.pages} pages"


@dataclass(frozen=True, kw_only=True)
class Target(Record):
    """Subject, weights, machine, software, launch: a measurement compares only within one target."""

    tag: ClassVar[str] = "target"

    subject: str
    """Id of the subject, which covers its weights and stock forward."""
    machine: Machine
    software: tuple[str, ...]
    """`name==version` of what can move a number: python, torch, reforward, compiler."""
    launch: Launch
