"""The engine of one NVIDIA GPU. As the CPU's, with the vault in device memory; see `holder.py` for who owns what."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reforward.domain.calibration import Bandwidth
from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed, EngineLost, Unavailable
from reforward.domain.measurement import Memory
from reforward.domain.ports import Prepared
from reforward.domain.spec import Limits, ModelSpec
from reforward.domain.subject import Subject
from reforward.domain.target import Machine
from reforward.engine import wire
from reforward.engine.client import Source
from reforward.engine.cpu import CpuEngine, Deadlines
from reforward.engine.cuda.card import Card
from reforward.engine.cuda.monitor import Monitor
from reforward.engine.handle import LmHandle, ModuleHandle, Process

HOST_BYTES = 32 << 30
"""Address space of a worker beyond what it inherits: the driver reserves many gigabytes that it never touches."""
QUIET_S = 2.0
"""So long a paused worker's device work may go on before that counts as a failure."""
BUSY, BUSY_S = 1.5, 0.0005
"""A sweep that takes this many times as long as on an idle device, and this much longer, shared the device."""


class Tampered(EngineLost):
    """Memory that all share was changed; the engine has ended, and starts afresh at the next use."""


class CudaEngine(CpuEngine):
    """Implements `domain.ports.Engine` for language models."""

    def __init__(
        self,
        source: Source,
        subject: Subject,
        spec: ModelSpec | None,
        *,
        card: Card,
        threads: int,
        machine: Machine,
        software: tuple[str, ...],
        cache: Path,
        deadlines: Deadlines | None = None,
    ) -> None:
        if source.module:
            raise Unavailable("a module subject runs on the CPU's engine only; set device = cpu")
        self.monitor = Monitor(card)
        super().__init__(
            replace(source, card=card),
            subject,
            spec,
            threads=threads,
            machine=replace(machine, devices=(self.monitor.name,)),
            software=(*software, f"nvidia-driver=={self.monitor.driver}"),
            cache=cache,
            deadlines=deadlines,
            workspace_bytes=HOST_BYTES,
        )

    def start_module(self, prepared: Prepared) -> ModuleHandle:
        """There is no host of modules on a device."""
        raise Unavailable("a module subject runs on the CPU's engine only; set device = cpu")

    def bandwidth(self) -> Bandwidth:
        """Of the device's memory."""
        found = self._server().ask(wire.Probe(), wire.Probed)
        return Bandwidth(read_bytes_s=found.read_bytes_s, cache_bytes=found.cache_bytes)

    def sweep(self) -> wire.Swept:
        """Read all resident memory once. `Tampered` if any of it was changed."""
        swept = self._server().ask(wire.Sweep(), wire.Swept)
        if swept.changed:
            self.close()
            raise Tampered(f"memory of the device that all share was changed ({', '.join(swept.changed)})")
        return swept

    def _memory(self, prepared: Prepared) -> int:
        """Mapped memory of the device takes address space of the host too."""
        return super()._memory(prepared) + self._server().opened.nbytes + prepared.packed_bytes

    def _handle(self, process: Process, candidate: Candidate, shared: Memory, outbox: int, limits: Limits) -> LmHandle:
        assert self.spec is not None
        return CudaLmHandle(
            process, candidate, self.deadlines.step_s, shared, outbox, limits, self.spec.vocab, self.sweep, self.monitor
        )


class CudaLmHandle(LmHandle):
    """A worker whose work runs on a device, where stopping a process stops nothing that it has queued."""

    def __init__(
        self,
        process: Process,
        candidate: Candidate,
        step_s: float,
        shared: Memory,
        outbox: int,
        limits: Limits,
        vocab: int,
        sweep: Callable[[], wire.Swept],
        monitor: Monitor,
    ) -> None:
        super().__init__(process, candidate, step_s, shared, outbox, limits, vocab)
        self.sweep, self.monitor = sweep, monitor

    def pause(self) -> None:
        """Stop it, and wait until the device is idle: its weights unchanged, L2 full of them, no work of anybody left.

        Raises `CandidateFailed` if work goes on for `QUIET_S`, or if the weights are not what they were: since the last look
        nobody else ran.
        """
        super().pause()
        until = time.monotonic() + QUIET_S
        while _busy(swept := self._sweep()):
            if time.monotonic() > until:
                reason = f"device work went on for {QUIET_S:g} s after the last answer"
                self._dead("run", f"{reason}: a sweep took {swept.seconds:.4f} s, not {swept.calm_s:.4f}")

    def _sweep(self) -> wire.Swept:
        try:
            return self.sweep()
        except Tampered as error:
            log = self.process.log_tail()
            self.close()
            raise CandidateFailed("run", str(error), log) from None

    def memory(self) -> Memory:
        """As on a CPU, and what the driver says that the process holds on the device, less its state there."""
        host = super().memory()
        device = self.monitor.process_bytes().get(self.process.pid, 0)
        return replace(host, private=host.private + max(0, device - self.state_bytes))

    def _state_in_pages(self) -> int:
        return 0


def _busy(swept: wire.Swept) -> bool:
    return swept.seconds > max(BUSY * swept.calm_s, swept.calm_s + BUSY_S)
