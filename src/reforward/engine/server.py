"""The server process: holds the vault and forks workers. Single-threaded, so that every fork is clean.

    python -m reforward.engine.server CONTROL_FD FOLDER

torch is imported here once, and nothing large is computed: an OpenMP pool or a device context would not survive a fork.
"""

import importlib
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from reforward.engine import sandbox, syscalls, wire
from reforward.engine.cuda.vault import DeviceVault
from reforward.engine.keeper import keep, probe
from reforward.engine.leftovers import remove
from reforward.engine.vault import Vault

SPAWN_DESCRIPTORS = 4


class Server:
    """Answers the client's requests, one at a time, until the client is gone."""

    def __init__(self, control: socket.socket, root: Path) -> None:
        self.control, self.root = control, root
        self.private = sandbox.own_mounts()
        self.vault = Vault(root, private=self.private)
        self.scratch = root / "scratch"
        self.scratch.mkdir()
        self.opened: wire.Open | None = None

    def serve(self) -> None:
        """Until the control socket closes."""
        while True:
            select.select([self.control], [], [], 1.0)
            self._reap()
            if not select.select([self.control], [], [], 0)[0]:
                continue
            try:
                message, descriptors = wire.receive_with_descriptors(self.control, wire.TO_SERVER, SPAWN_DESCRIPTORS)
            except wire.Gone:
                return
            try:
                reply = self._answer(message, descriptors)
            except (OSError, ValueError) as error:
                reply = wire.Refused(reason=f"{type(error).__name__}: {error}")
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            try:
                wire.send(self.control, reply)
            except wire.Gone:
                return

    def _answer(self, message: wire.ToServer, descriptors: list[int]) -> wire.FromServer:
        match message:
            case wire.Open():
                return self._open(message)
            case wire.Spawn():
                self._spawn(message, descriptors)
            case wire.Seal():
                self.vault.seal(message.key, message.tensors)
            case wire.Drop():
                self.vault.drop(message.key)
            case wire.Sweep():
                assert isinstance(self.vault, DeviceVault)
                return self.vault.sweep()
            case wire.Probe():
                assert isinstance(self.vault, DeviceVault)
                return self.vault.probe()
        return wire.Done()

    def _open(self, message: wire.Open) -> wire.Opened:
        self.opened = message
        if message.card:
            self.vault = DeviceVault(self.root, private=self.private, card=message.card)
        if message.module:
            from reforward.engine.loader import load_module

            shelf = load_module(self.vault, message.module, self.control)
        else:
            shelf = self.vault.load(message.tensors)
        _import_torch(compiler=bool(message.module or message.card))
        protections = probe(self.scratch, private=self.private)
        return wire.Opened(pages=self.vault.pages, nbytes=shelf.nbytes, protections=protections)

    def _spawn(self, message: wire.Spawn, descriptors: list[int]) -> None:
        if len(descriptors) not in (3, 4):
            raise ValueError(f"a spawn needs 3 or 4 descriptors, got {len(descriptors)}")
        assert self.opened is not None
        pack_file = self.vault.writable(message.pack_into, message.memory_bytes) if message.pack_into else None
        pid = os.fork()
        if pid == 0:
            self.control.close()
            keep(message, self.opened, self.vault, self.scratch, pack_file, descriptors)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return


def _import_torch(*, compiler: bool) -> None:
    """Import torch and the worker's own code, so that no worker does, and let torch look at the processor; one element at a
    time starts no thread pool.

    `compiler`: also what many modules pull in at their own import, seconds that each worker is then spared.
    """
    before = _device_files()
    import torch

    importlib.import_module("reforward.engine.worker")
    if compiler:
        importlib.import_module("torch._dynamo")
    (torch.ones(1) + 1).item()
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    assert threads == 1, f"a fork of {threads} threads is not clean"
    assert _device_files() == before, "a fork of a process that opened a device is not clean"


def _device_files() -> set[str]:
    """Descriptors of an NVIDIA device; memory that the holder exported counts as one."""
    files = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return {path.name for path in files if str(path.readlink()).startswith("/dev/nvidia")}


def main() -> None:
    """Serve on the inherited descriptor until the client closes it or dies; the folder goes away with the process.

    Not tied to its parent by a signal: that would follow the thread that started it, not the process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    root = Path(sys.argv[2])
    parent, code = os.getpid(), 0
    try:
        server = Server(control, root)
        try:
            server.serve()
        finally:
            server.vault.close()
    except Exception:  # noqa: BLE001 - process boundary: the client reads it from the log
        traceback.print_exc()
        code = 1
    finally:
        if os.getpid() == parent:
            _clear(root)
    sys.stderr.flush()
    os._exit(code)


def _clear(root: Path) -> None:
    """Shelves first: what is mounted cannot be removed."""
    for folder in root.iterdir():
        with suppress(OSError):
            syscalls.unmount(str(folder))
    remove(root)


if __name__ == "__main__":
    main()
