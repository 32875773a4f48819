"""What is fuzzed: each target takes a seeded generator, feeds one input to a part of the controller, and may raise only what
that part promises. Anything else is a crash.
"""

import json
import os
import random
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from fuzz.mutate import bent, damaged
from ledger.records import EVERY_KIND
from reforward.app.trees import read_tree
from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import BadInput, CandidateFailed, EngineLost, LedgerCorrupt
from reforward.domain.measurement import Memory
from reforward.domain.record import content_id
from reforward.engine import wire
from reforward.engine.handle import Handle, ModuleHandle, Process
from reforward.ledger.codec import decode
from reforward.models.checkpoint import read_checkpoint, write_safetensors
from reforward.models.families import spec_from_config, stock_candidate
from reforward.models.shapes import expected_shapes
from reforward.runtime import bind
from reforward.traffic.trace import read_trace

TENSOR = wire.TensorData(dtype="float32", shape=(2, 3), data=bytes(24))
PLACE = wire.Stored(name="w", dtype="float32", shape=(2, 3), offset=64, nbytes=24)
ANSWERS: tuple[wire.Message, ...] = (
    wire.Ready(watermark="candidate:b2:00", state_bytes=100),
    wire.Tokens(steps=((1, 2), (3, 4))),
    wire.Drawn(inputs=(TENSOR, TENSOR)),
    wire.Called(outputs={"output[0]": TENSOR, "output.x": TENSOR}),
    wire.Packed(tensors=(PLACE, PLACE)),
    wire.Built(),
    wire.Failed(stage="run", reason="lost\x1b[2J", log="line\n" * 9),
)
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 8, "vocab_size": 9, "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    "tie_word_embeddings": True, "sliding_window": None, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
}  # fmt: skip
TOKENIZER = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 2, "content": "<s>"}]}
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"2023-11-16 18:15:46.6805900,374,44\n" * 9
BURSTGPT = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + b"5,A,472,18,490,API log\n" * 9
OURS = (
    (
        b'{"format": "reforward-trace", "version": 1, "time_unit": "ms", "begun_at": "2026-01-02T03:04:05+00:00", '
        b'"block_size": 64, "block_unit": "token", "salt_id": "x", "source": "y"}\n'
    )
    + b'{"timestamp": 1.5, "input_length": 67, "output_length": 5, "e2e_ms": 9, "sampling": {"n": 2}, "status": 200}\n'
    * 9
)
MOONCAKE = b'{"timestamp": 3000, "input_length": 67, "output_length": 5, "hash_ids": [0, 1]}\n' * 9
LOADED = (
    b"forward.py",
    b"build.py",
    b"more.py",
    b"a/b.py",
    b".x",
    b"a b",
    b"\xff.py",
    b"a/../b",
    b"__pycache__/x.pyc",
    "é.py".encode(),
)


class Targets:
    """Everything that is fuzzed, with a scratch folder. Use it as a context, from one thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = [(record.id, record.tag, record.body) for record in EVERY_KIND]
        self.stock = stock_candidate("llama")
        self.checkpoint = _checkpoint(folder / "checkpoint")

    def all(self) -> dict[str, tuple[Callable[[random.Random], object], tuple[type[Exception], ...]]]:
        """Target by name, and what it may raise."""
        return {
            "messages": (self.messages, (wire.Nonsense,)),
            "frames": (self.frames, (wire.Nonsense, wire.Gone, TimeoutError)),
            "answers": (self.answers, (CandidateFailed, EngineLost)),
            "trees": (self.trees, (BadInput,)),
            "candidates": (self.candidates, (BadInput,)),
            "sources": (self.sources, (CandidateFailed,)),
            "rows": (self.rows, (LedgerCorrupt,)),
            "checkpoints": (self.checkpoints, (BadInput,)),
            "traces": (self.traces, (BadInput,)),
        }

    def messages(self, draw: random.Random) -> object:
        """A frame's body, in both directions."""
        body = msgspec.msgpack.encode(draw.choice(ANSWERS))
        kind = draw.random()
        if kind < 0.5:
            with suppress(OverflowError):
                body = msgspec.msgpack.encode(bent(draw, msgspec.msgpack.decode(body)))
        elif kind < 0.9:
            body = damaged(draw, body)
        return wire.decode(body, draw.choice((wire.FROM_WORKER, wire.FROM_WORKER, wire.FROM_SERVER, wire.TO_WORKER)))

    def frames(self, draw: random.Random) -> object:
        """A byte stream: lengths that lie, several frames, an end in between."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            data = b"".join(wire.frame(draw.choice(ANSWERS)) for _ in range(draw.randint(1, 3)))
            theirs.send(damaged(draw, data)[:60_000] if draw.random() < 0.8 else data)
            if draw.random() < 0.9:
                theirs.close()
            ours.settimeout(0.001)
            return wire.receive(ours, wire.FROM_WORKER, most=wire.SMALL_FRAME)

    def answers(self, draw: random.Random) -> object:
        """A worker that answers one question with a stream of its own, to the client's end of it."""
        process, theirs = _idle_process()
        about = Memory(weights=1, packed=0, state=0, private=0)
        handle: Handle = draw.choice((Handle, ModuleHandle))(process, self.stock, 0.05, about)
        try:
            answer = threading.Thread(target=_answer, args=(draw, theirs))
            answer.start()
            if isinstance(handle, ModuleHandle):
                return handle.call(())
            return handle.ask(wire.Build(files={}, out="", threads=1), type(draw.choice(ANSWERS)), "run", 0.05)
        finally:
            answer.join()
            theirs.close()
            handle.close()
            os.waitpid(process.pid, 0)

    def trees(self, draw: random.Random) -> object:
        """A folder on disk with odd names, links, and contents."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            if draw.random() < 0.5:
                Path(name, "forward.py").write_bytes(self.stock.files[0].text.encode())
            for _ in range(draw.randint(0, 3)):
                with suppress(OSError):
                    _plant(draw, os.fsencode(name) + b"/" + draw.choice(LOADED), self.text(draw))
            return read_tree(Path(name), self.stock).id

    def candidates(self, draw: random.Random) -> object:
        """A candidate from parts, as a proposer or a ledger may hand it over."""
        names = ("forward.py", "a.py", "a/b.py", "../x.py", "/x.py", "a//b.py", ".x", "x\n.py", "", "é.py")
        chosen = draw.sample(names if draw.random() < 0.5 else names[:3], draw.randint(0, 3))
        files = [SourceFile(path=name, text=self.text(draw).decode(errors="surrogateescape")) for name in chosen]
        if draw.random() < 0.8:
            files.sort(key=lambda file: file.path)
        entry = draw.choice(("forward.py:Forward", "forward.py:Forward", "a.py:", ":", "", "a/b.py:X"))
        return Candidate(host="lm", entry=entry, files=tuple(files)).id

    def sources(self, draw: random.Random) -> object:
        """A damaged forward, compiled as the loader does before anything runs."""
        return bind._check_syntax("forward.py", self.text(draw).decode(errors="replace"))

    def rows(self, draw: random.Random) -> object:
        """A row of the ledger; half of them with an id that fits."""
        record, tag, body = draw.choice(self.records)
        with suppress(ValueError):
            body = json.dumps(bent(draw, json.loads(body)), default=str) if draw.random() < 0.7 else _text(draw, body)
        return decode(content_id(tag, body) if draw.random() < 0.9 else record, tag, body)

    def checkpoints(self, draw: random.Random) -> object:
        """A folder with one file damaged."""
        name = draw.choice(sorted(self.checkpoint))
        data = self.checkpoint[name]
        if name.endswith(".json") and draw.random() < 0.7:
            data = json.dumps(bent(draw, json.loads(data)), default=str).encode()
        else:
            data = damaged(draw, data)
        path = self.folder / "checkpoint" / name
        path.write_bytes(data)
        try:
            return read_checkpoint(path.parent)
        finally:
            path.write_bytes(self.checkpoint[name])

    def traces(self, draw: random.Random) -> object:
        """A trace file."""
        path = self.folder / "trace"
        path.write_bytes(damaged(draw, draw.choice((AZURE, MOONCAKE, BURSTGPT, OURS))))
        return read_trace(path)

    def text(self, draw: random.Random) -> bytes:
        """Source text, nearly right."""
        whole = self.stock.files[0].text.encode()
        at = draw.randrange(len(whole))
        return damaged(draw, whole[at : at + draw.randrange(2000)]) if draw.random() < 0.7 else whole


def _text(draw: random.Random, text: str) -> str:
    return damaged(draw, text.encode()).decode(errors="replace")


def _answer(draw: random.Random, sock: socket.socket) -> None:
    """What a worker might write to a question, or without one."""
    if draw.random() < 0.8:
        sock.recv(4096)
    data = b"".join(wire.frame(draw.choice(ANSWERS)) for _ in range(draw.choice((1, 1, 1, 2))))
    with suppress(BrokenPipeError):
        sock.send(damaged(draw, data) if draw.random() < 0.6 else data)
    if draw.random() < 0.5:
        sock.shutdown(socket.SHUT_RDWR)


def _plant(draw: random.Random, path: bytes, text: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - names that are no text
    match draw.randrange(6):
        case 0:
            os.symlink(draw.choice((b"/etc/passwd", b".", b"nowhere")), path)  # noqa: PTH211
        case 1:
            os.mkfifo(path)
        case 2:
            os.mkdir(path)  # noqa: PTH102
        case _:
            with open(path, "xb") as file:  # noqa: PTH123
                file.write(text)


def _checkpoint(folder: Path) -> dict[str, bytes]:
    """A tiny whole checkpoint, by file name."""
    folder.mkdir()
    spec = spec_from_config(CONFIG)
    tensors = {name: ("F32", shape, bytes(4 * _count(shape))) for name, shape in expected_shapes(spec).items()}
    write_safetensors(folder / "model.safetensors", tensors)
    index = {"weight_map": dict.fromkeys(tensors, "model.safetensors")}
    documents = {"config.json": CONFIG, "tokenizer.json": TOKENIZER, "model.safetensors.index.json": index}
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    read_checkpoint(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _count(shape: tuple[int, ...]) -> int:
    return shape[0] * shape[1] if len(shape) == 2 else shape[0]


def _idle_process() -> tuple[Process, socket.socket]:
    """The client's view of a real process that does nothing, and the worker's end of its socket."""
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    os.write(writer, f"{pid}\n9\n".encode())
    os.close(writer)
    process = Process(ours, os.memfd_create("log"), reader, 60.0)
    return process, theirs
