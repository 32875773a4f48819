"""The process that owns device memory: fills it, hands out descriptors of it, looks after it. Runs no candidate and no torch.

Forked by the server before torch is imported; the server itself never makes a context on the device, so that its forks
stay clean. If the holder dies, the server does too, and the client starts both again.
"""

import mmap
import os
import signal
import socket
import statistics
import traceback
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from reforward.engine import wire
from reforward.engine.cuda.bandwidth import read_bandwidth
from reforward.engine.cuda.card import Card
from reforward.engine.cuda.driver import Driver
from reforward.engine.cuda.sweep import L2_BYTES, WORDS, Sweep
from reforward.engine.syscalls import PR_SET_PDEATHSIG, prctl

CALIBRATIONS = 5
"""Sweeps of new memory on an idle device, of which the median counts."""


class Upload(wire.Message, frozen=True, kw_only=True):
    """Copy a file into device memory. Comes with the file's descriptor; answered with one of the memory."""

    key: str
    nbytes: int


BALLAST = 2
"""Times the L2's size that a sweep reads last, of memory that nobody else has: so no arm finds anything of its own there."""
ToHolder = Upload | wire.Drop | wire.Sweep | wire.Probe
FromHolder = wire.Done | wire.Swept | wire.Probed | wire.Refused
TO_HOLDER = msgspec.msgpack.Decoder(ToHolder)
FROM_HOLDER = msgspec.msgpack.Decoder(FromHolder)


@dataclass(frozen=True, kw_only=True)
class Arena:
    """One mapped piece of device memory."""

    address: int
    nbytes: int
    digest: int
    calm_s: float
    """Seconds of a sweep when the device did nothing else."""


class Holder:
    """The server's end."""

    def __init__(self, card: Card) -> None:
        self.sock, theirs = socket.socketpair()
        if os.fork() == 0:
            self.sock.close()
            _hold(theirs, card)
        theirs.close()

    def upload(self, key: str, file: int, nbytes: int) -> int:
        """Descriptor of new device memory with the file's bytes. Raises `ValueError` with the driver's reason."""
        wire.send(self.sock, Upload(key=key, nbytes=nbytes), (file,))
        reply, descriptors = wire.receive_with_descriptors(self.sock, FROM_HOLDER, 1)
        if isinstance(reply, wire.Refused):
            raise ValueError(reply.reason)
        return descriptors[0]

    def drop(self, key: str) -> None:
        """Forget memory; it is freed when the last worker that maps it ends."""
        self._ask(wire.Drop(key=key))

    def sweep(self) -> wire.Swept:
        """Read all memory once."""
        reply = self._ask(wire.Sweep())
        assert isinstance(reply, wire.Swept)
        return reply

    def probe(self) -> wire.Probed:
        """How fast the device reads."""
        reply = self._ask(wire.Probe())
        assert isinstance(reply, wire.Probed)
        return reply

    def close(self) -> None:
        """Let the process end, and with it its context; at the latest it ends with the server."""
        self.sock.close()

    def _ask(self, message: wire.Message) -> FromHolder:
        wire.send(self.sock, message)
        reply = wire.receive(self.sock, FROM_HOLDER)
        if isinstance(reply, wire.Refused):
            raise ValueError(reply.reason)
        return reply


class _Memory:
    """The holder's own state."""

    def __init__(self, card: Card) -> None:
        self.driver = Driver(card)
        self.sweep = Sweep(self.driver)
        self.arenas: dict[str, Arena] = {}
        size = -(-BALLAST * self.driver.attribute(L2_BYTES) // WORDS) * WORDS
        self.ballast = self._arena(self.driver.allocate(size), size)

    def upload(self, key: str, file: int, nbytes: int) -> int:
        size = self.driver.whole(nbytes)
        handle = self.driver.create(size)
        descriptor = self.driver.export(handle)
        address = self.driver.map(handle, size, writable=True)
        with mmap.mmap(file, nbytes, flags=mmap.MAP_PRIVATE) as source, memoryview(source) as view:
            self.driver.upload(address, view)
        self.arenas[key] = self._arena(address, size)
        return descriptor

    def _arena(self, address: int, size: int) -> Arena:
        """Memory with its keyed sum, and how long a read of it takes now, while the device does nothing else."""
        found = [self.sweep(address, size) for _ in range(CALIBRATIONS)]
        calm_s = statistics.median(seconds for _, seconds in found)
        return Arena(address=address, nbytes=size, digest=found[0][0], calm_s=calm_s)

    def drop(self, key: str) -> None:
        arena = self.arenas.pop(key)
        self.driver.unmap(arena.address, arena.nbytes)

    def look(self) -> wire.Swept:
        found = {key: self.sweep(arena.address, arena.nbytes) for key, arena in self.arenas.items()}
        _, last_s = self.sweep(self.ballast.address, self.ballast.nbytes)
        return wire.Swept(
            seconds=sum(seconds for _, seconds in found.values()) + last_s,
            calm_s=sum(arena.calm_s for arena in self.arenas.values()) + self.ballast.calm_s,
            changed=tuple(key for key, (digest, _) in found.items() if digest != self.arenas[key].digest),
        )


def _hold(sock: socket.socket, card: Card) -> NoReturn:
    """The holder's life: until the server is gone."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        memory: _Memory | None = None
        while True:
            message, descriptors = wire.receive_with_descriptors(sock, TO_HOLDER, 1)
            try:
                memory = memory or _Memory(card)
                reply, made = _answer(memory, message, descriptors)
            except OSError as error:
                reply, made = wire.Refused(reason=str(error)), ()
            wire.send(sock, reply, made)
            for descriptor in (*descriptors, *made):
                os.close(descriptor)
    except wire.Gone:
        os._exit(0)
    except BaseException:  # noqa: BLE001 - process boundary: the client reads it from the server's log
        traceback.print_exc()
    finally:
        os._exit(1)


def _answer(memory: _Memory, message: ToHolder, descriptors: list[int]) -> tuple[wire.Message, tuple[int, ...]]:
    match message:
        case Upload():
            return wire.Done(), (memory.upload(message.key, descriptors[0], message.nbytes),)
        case wire.Drop():
            memory.drop(message.key)
            return wire.Done(), ()
        case wire.Sweep():
            return memory.look(), ()
        case wire.Probe():
            found = read_bandwidth(memory.driver)
            return wire.Probed(read_bytes_s=found.read_bytes_s, cache_bytes=found.cache_bytes), ()
