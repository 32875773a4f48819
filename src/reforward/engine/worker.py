"""The worker: the only place where candidate code runs. Confined, trusted for nothing, gone after its session."""

import mmap
import os
import resource
import socket
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args

import msgspec
import torch
from torch import Tensor

from reforward.domain.errors import CandidateFailed
from reforward.domain.measurement import Stage
from reforward.domain.spec import Limits, ModelSpec, Segment
from reforward.engine import wire
from reforward.engine.cuda.resident import DeviceResident, pin
from reforward.engine.cuda.vault import DeviceVault
from reforward.engine.vault import Shelf, Vault, extent, place
from reforward.engine.wire import Stored
from reforward.runtime import bind
from reforward.runtime.lm import LmHost, pack, truncate
from reforward.runtime.slots import layout, restore, save

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
LOG_TAIL = 4000
NO_MEMORY = ("can't allocate memory", "bad_alloc", "Cannot allocate memory")


@dataclass(frozen=True, kw_only=True)
class Resident:
    """What was mapped before the worker was confined."""

    weights: Shelf
    weights_map: mmap.mmap | None
    packed: Shelf | None
    packed_map: mmap.mmap | None
    descriptors: tuple[int, ...] = ()
    """Descriptors that confinement must leave open: none, since everything is mapped."""

    def tensors(self) -> dict[str, Tensor]:
        """Weights by name, read-only views of the shared mapping."""
        return views(self.weights.tensors, self.weights_map)

    def packs(self) -> dict[str, Tensor]:
        """Packed tensors by name."""
        return views(self.packed.tensors, self.packed_map) if self.packed else {}


def resident_of(vault: Vault, packed: str) -> "Resident | DeviceResident":
    """Weights and one candidate's packed tensors, wherever the vault keeps them."""
    if isinstance(vault, DeviceVault):
        return DeviceResident(vault, packed)
    weights, shelf = vault.shelves["weights"], vault.shelves[packed] if packed else None
    return Resident(weights=weights, weights_map=weights.map(), packed=shelf, packed_map=shelf.map() if shelf else None)


def views(tensors: tuple[Stored, ...], mapping: mmap.mmap | None) -> dict[str, Tensor]:
    """Tensors over a mapping, no copy. A store to one is a fault, since the pages are read-only."""
    return {tensor.name: view(tensor, mapping) for tensor in tensors}


def view(tensor: Stored, mapping: mmap.mmap | None) -> Tensor:
    """One tensor over a mapping."""
    dtype = DTYPES[tensor.dtype]
    if not tensor.nbytes:
        return torch.empty(tensor.shape, dtype=dtype)
    assert mapping is not None
    count = tensor.nbytes // dtype.itemsize
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")  # so it is meant
        flat = torch.frombuffer(mapping, dtype=dtype, count=count, offset=tensor.offset)
    return flat.view(tensor.shape)


class Worker:
    """Answers messages about one candidate until the client is gone."""

    def __init__(
        self, sock: socket.socket, outbox: int, pack_file: int, resident: "Resident | DeviceResident", scratch: Path
    ) -> None:
        self.sock, self.outbox, self.pack_file = sock, outbox, pack_file
        self.resident, self.scratch = resident, scratch
        self.tree = scratch
        self.host: Any = None
        self.rows: Tensor | None = None
        self.profiler: Any = None
        self.stage: Stage = "load"

    def serve(self) -> None:
        """One message at a time. Whatever the candidate raises becomes a `Failed` message."""
        while True:
            try:
                message = wire.receive(self.sock, wire.TO_WORKER)
            except wire.Gone:
                return
            frame, over = self._frame(message)
            sys.stdout.flush()
            wire.send_frame(self.sock, frame)
            if over:
                return

    def _frame(self, message: wire.ToWorker) -> tuple[bytes, bool]:
        """The answer as it is written, and whether it is the last one."""
        try:
            return wire.frame(self._answer(message)), False
        except CandidateFailed as error:
            return wire.frame(failed(known_stage(error.stage), error.reason, error.log)), True
        except BaseException as error:  # noqa: BLE001 - process boundary: becomes a record
            return wire.frame(self._failed(error)), True

    def _failed(self, error: BaseException) -> wire.Failed:
        lines = traceback.format_exception(error)
        reason = f"{type(error).__name__}: {error}{bind.place(error, self.tree)}"
        if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
            limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
            reason = f"over its memory limit of {limit / 2**30:.1f} GiB: {reason}"
        return failed(self.stage, reason, "".join(lines))

    def _answer(self, message: wire.ToWorker) -> wire.FromWorker:
        match message:
            case wire.LoadLm():
                return self._load_lm(message)
            case wire.LoadModule():
                return self._load_module(message)
            case wire.Build():
                return self._build(message)
            case wire.Step():
                return self._step(message)
            case wire.Run():
                return self._run(message)
            case wire.Save() | wire.Restore():
                return self._move(message)
            case wire.Draw():
                return wire.Drawn(inputs=tuple(to_data(t) for t in self.host.draw(message.seed, message.tier)))
            case wire.Call():
                outputs = self.host.call([from_data(data) for data in message.inputs])
                return wire.Called(outputs={place: to_data(tensor) for place, tensor in outputs.items()})
            case wire.Profile():
                return self._profile(on=message.on)

    def _load_lm(self, message: wire.LoadLm) -> wire.FromWorker:
        torch.set_num_threads(message.threads)
        spec = msgspec.convert(message.spec, ModelSpec)
        forward = bind.load_forward(message.files, message.entry, self.scratch)
        weights = self.resident.tensors()
        if message.pack:
            self.stage = "pack"
            return self._write_pack(pack(forward, spec, weights))
        spec, weights = truncate(spec, weights, message.depth)
        limits = Limits(**message.limits)
        self.host = LmHost(
            forward,
            spec=spec,
            weights=weights,
            packed=self.resident.packs(),
            limits=limits,
            artifacts=Path(message.artifacts or self.scratch),
            dtype=DTYPES[message.dtype],
            oracle=message.oracle,
        )
        self.rows = map_outbox(self.outbox, limits.rows, spec.vocab)
        if self.host.device.type == "cuda":
            pin(self.rows)
        self.stage = "run"
        mark = bind.watermark(message.files, message.entry, "lm", self.scratch)
        asked = forward.state(spec, limits, DTYPES[message.dtype])
        return wire.Ready(watermark=mark, state_bytes=self.host.state_bytes, layout=layout(asked))

    def _load_module(self, message: wire.LoadModule) -> wire.FromWorker:
        from reforward.runtime.module import ModuleHost, load_subject

        torch.set_num_threads(message.threads)
        self.tree = self.scratch / "tree"
        cls = bind.load_overlay(message.files, message.entry, self.tree, beside=message.module)
        artifacts = Path(message.artifacts) if message.artifacts else None
        self.host = ModuleHost(load_subject(message.module), cls, self.resident.tensors(), artifacts)
        self.stage = "run"
        mark = bind.watermark(message.files, message.entry, "module", self.tree)
        return wire.Ready(watermark=mark, state_bytes=0)

    def _build(self, message: wire.Build) -> wire.Built:
        self.stage = "build"
        torch.set_num_threads(message.threads)
        bind.load_function(message.files, "build.py:build", self.scratch)(Path(message.out))
        return wire.Built()

    def _step(self, message: wire.Step) -> wire.Tokens:
        assert self.rows is not None
        rows = self.rows[message.first : message.first + len(message.rows)]
        segments = [Segment(slot=slot, start=start, length=length) for slot, start, length in message.segments]
        return wire.Tokens(steps=(tuple(self.host.step(message.tokens, segments, message.rows, rows)),))

    def _run(self, message: wire.Run) -> wire.Tokens:
        assert self.rows is not None
        rows = self.rows[message.first : message.first + message.steps * len(message.last)]
        made = self.host.run(message.last, message.slots, message.positions, message.steps, rows)
        return wire.Tokens(steps=tuple(tuple(step) for step in made))

    def _move(self, message: wire.Save | wire.Restore) -> wire.Moved:
        assert self.rows is not None
        copy = save if isinstance(message, wire.Save) else restore
        copy(self.host.state, message.slot, message.at, self.rows.view(-1).view(torch.uint8)[: message.count])
        return wire.Moved()

    def _profile(self, *, on: bool) -> wire.Profiled:
        from reforward.runtime import profiler

        if on:
            self.profiler = profiler.start()
            return wire.Profiled(ops=())
        return wire.Profiled(ops=tuple(profiler.table(self.profiler)))

    def _write_pack(self, packed: dict[str, Tensor]) -> wire.Packed:
        plain = [
            Stored(name=n, dtype=str(t.dtype).removeprefix("torch."), shape=tuple(t.shape), offset=0, nbytes=t.nbytes)
            for n, t in sorted(packed.items())
        ]
        placed = place(plain)
        os.ftruncate(self.pack_file, extent(placed))
        for tensor in placed:
            write_at(self.pack_file, to_bytes(packed[tensor.name]), tensor.offset)
        return wire.Packed(tensors=placed)


def failed(stage: Stage, reason: str, log: str) -> wire.Failed:
    """A failure in words that can be sent, whatever the candidate put into them."""
    return wire.Failed(stage=stage, reason=_sendable(reason[:1000]), log=_sendable(log[-LOG_TAIL:]))


def _sendable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def known_stage(stage: str) -> Stage:
    """Candidate code may raise our own exception with any word in it; what is no stage is a failed run."""
    return msgspec.convert(stage, Stage) if stage in get_args(Stage) else "run"


def map_outbox(descriptor: int, rows: int, vocab: int) -> Tensor:
    """The shared `[rows, vocab]` fp32 buffer that the client reads after its clock has stopped."""
    mapping = mmap.mmap(descriptor, rows * vocab * 4)
    return torch.frombuffer(mapping, dtype=torch.float32).view(rows, vocab)


def to_bytes(tensor: Tensor) -> memoryview:
    """Row-major bytes of a tensor, any type."""
    return memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)


def to_data(tensor: Tensor) -> wire.TensorData:
    """A tensor by value."""
    data = bytes(to_bytes(tensor)) if tensor.numel() else b""
    return wire.TensorData(dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), data=data)


def from_data(data: wire.TensorData) -> Tensor:
    """A fresh, writable tensor with these bytes."""
    if not data.data:
        return torch.empty(data.shape, dtype=DTYPES[data.dtype])
    return torch.frombuffer(bytearray(data.data), dtype=DTYPES[data.dtype]).view(data.shape)


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """All of `data`, in pieces that a file-size limit on one write does not cut."""
    at = 0
    while at < len(data):
        at += os.pwrite(descriptor, data[at : at + (64 << 20)], offset + at)


def work(sock: int, outbox: int, pack_file: int, resident: "Resident | DeviceResident", scratch: Path) -> NoReturn:
    """The worker's life."""
    code = 1
    try:
        Worker(socket.socket(fileno=sock), outbox, pack_file, resident, scratch).serve()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
