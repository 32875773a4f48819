"""Typed messages between the client, the server and its workers. Nothing is unpickled; frames have a size limit.

A frame is four bytes of length, little-endian, and one msgpack document of a tagged struct. Unknown fields, unknown tags and
wrong types are errors, and a worker that sends one is ended.
"""

import socket
import time
from typing import Annotated, Any, TypeVar

import msgspec

from reforward.domain.measurement import Stage
from reforward.engine.cuda.card import Card

MAX_FRAME, SMALL_FRAME = 256 << 20, 4 << 20
"""Tensors travel by value in the first; all else fits the second."""
HEADER = 4
PIECE = 1 << 20
Natural = Annotated[int, msgspec.Meta(ge=0)]
Shape = Annotated[tuple[Natural, ...], msgspec.Meta(max_length=32)]
Name = Annotated[str, msgspec.Meta(max_length=1024)]
Text = Annotated[str, msgspec.Meta(max_length=1 << 16)]
MOST_TENSORS = 1 << 16
Span = tuple[int, int, int]
"""slot, start, length of a segment."""


class Nonsense(Exception):
    """The other side sent something that is not a message."""


class Gone(Exception):
    """The other side closed the connection."""


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Base of all messages."""


class TensorData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tensor by value."""

    dtype: Name
    shape: Shape
    data: bytes


class Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a tensor lies in a file: in a checkpoint before loading, in the vault after."""

    name: Name
    dtype: Name
    shape: Shape
    offset: Natural
    nbytes: Natural
    file: str = ""


# --- client to server ---


class Open(Message, frozen=True, kw_only=True):
    """First message: load these weights, once."""

    tensors: tuple[Stored, ...]
    """lm: where the bytes lie on disk. Empty for a module."""
    module: str
    """Module subject reference; empty for lm."""
    readable: tuple[str, ...]
    """Folders that workers may read besides the system and Python."""
    card: Card | None = None
    """The device whose memory holds the weights; None for the host's."""


class Spawn(Message, frozen=True, kw_only=True):
    """Fork a worker. Comes with descriptors: socket, log, status pipe, and for lm the outbox."""

    packed: str
    """Key of packed tensors to map; empty for none."""
    pack_into: str
    """Key under which this worker packs; empty unless it is a pack worker."""
    writable: str
    """Folder that a build may write to; empty otherwise."""
    readable: str
    """Folder of build artifacts; empty for none."""
    memory_bytes: int
    """Ceiling of the worker's private memory."""


class Seal(Message, frozen=True, kw_only=True):
    """Make what a finished pack worker wrote read-only, for all later workers."""

    key: str
    tensors: tuple[Stored, ...]


class Drop(Message, frozen=True, kw_only=True):
    """Forget packed tensors; workers that map them keep them until they end."""

    key: str


class Sweep(Message, frozen=True, kw_only=True):
    """Read all device memory of the vault once (see `engine/cuda/sweep.py`)."""


class Probe(Message, frozen=True, kw_only=True):
    """Measure how fast the device reads its memory (see `engine/cuda/bandwidth.py`)."""


# --- server to client ---


class Opened(Message, frozen=True, kw_only=True):
    """Weights are in place."""

    pages: str
    nbytes: int
    protections: tuple[str, ...]


class Done(Message, frozen=True, kw_only=True):
    """A server request is fulfilled."""


class Swept(Message, frozen=True, kw_only=True):
    """What a sweep found."""

    seconds: float
    calm_s: float
    """Seconds that it takes when the device does nothing else."""
    changed: tuple[str, ...]
    """Keys of memory whose bytes are not those that were uploaded."""


class Probed(Message, frozen=True, kw_only=True):
    """What a probe found."""

    read_bytes_s: float
    cache_bytes: int


class Refused(Message, frozen=True, kw_only=True):
    """A server request failed."""

    reason: str


# --- client to worker ---


class LoadLm(Message, frozen=True, kw_only=True):
    """Become an `lm` worker."""

    files: dict[str, str]
    entry: str
    spec: dict[str, Any]
    dtype: str
    depth: int
    limits: dict[str, int]
    artifacts: str
    oracle: bool
    threads: int
    pack: bool
    """Pack and end, instead of serving."""


class LoadModule(Message, frozen=True, kw_only=True):
    """Become a `module` worker."""

    files: dict[str, str]
    entry: str
    module: str
    artifacts: str
    threads: int


class Build(Message, frozen=True, kw_only=True):
    """Run `build.py` of a tree, and end."""

    files: dict[str, str]
    out: str
    threads: int


class Step(Message, frozen=True, kw_only=True):
    """One ragged call; row i goes to outbox row `first + i`."""

    tokens: tuple[int, ...]
    segments: tuple[Span, ...]
    rows: tuple[int, ...]
    first: int


class Run(Message, frozen=True, kw_only=True):
    """`steps` greedy steps."""

    last: tuple[int, ...]
    slots: tuple[int, ...]
    positions: tuple[int, ...]
    steps: int
    first: int


class Save(Message, frozen=True, kw_only=True):
    """Copy `count` bytes of a slot's state, from byte `at`, to the beginning of the outbox."""

    slot: int
    at: int
    count: int


class Restore(Message, frozen=True, kw_only=True):
    """Copy `count` bytes from the beginning of the outbox to a slot's state, from byte `at`."""

    slot: int
    at: int
    count: int


class Draw(Message, frozen=True, kw_only=True):
    """Fresh inputs of a module subject."""

    seed: int
    tier: str


class Call(Message, frozen=True, kw_only=True):
    """One forward of a module."""

    inputs: tuple[TensorData, ...]


class Profile(Message, frozen=True, kw_only=True):
    """Begin to note operations, or end it and tell."""

    on: bool


# --- worker to client ---


class Ready(Message, frozen=True, kw_only=True):
    """The candidate is bound and may be asked."""

    watermark: Name
    state_bytes: Natural
    layout: Name = ""
    """Hash of the state that its forward asked for; equal: slots can be handed over."""


class Tokens(Message, frozen=True, kw_only=True):
    """Greedy tokens, one list per step."""

    steps: tuple[tuple[int, ...], ...]


class Moved(Message, frozen=True, kw_only=True):
    """Bytes of a slot were copied."""


class Drawn(Message, frozen=True, kw_only=True):
    """Inputs."""

    inputs: Annotated[tuple[TensorData, ...], msgspec.Meta(max_length=MOST_TENSORS)]


class Called(Message, frozen=True, kw_only=True):
    """Outputs by place in the returned tree."""

    outputs: Annotated[dict[Name, TensorData], msgspec.Meta(max_length=MOST_TENSORS)]


class Packed(Message, frozen=True, kw_only=True):
    """What was written to the pack file."""

    tensors: Annotated[tuple[Stored, ...], msgspec.Meta(max_length=MOST_TENSORS)]


class Profiled(Message, frozen=True, kw_only=True):
    """Operations of what ran since the profiler was started; none yet when it starts."""

    ops: Annotated[tuple[tuple[Name, Natural, Natural], ...], msgspec.Meta(max_length=64)]
    """Name, calls, microseconds inside it."""


class Built(Message, frozen=True, kw_only=True):
    """The build ended well."""


class Failed(Message, frozen=True, kw_only=True):
    """The candidate broke a rule of a stage."""

    stage: Stage
    reason: Text
    log: Text


ToServer = Open | Spawn | Seal | Drop | Sweep | Probe
FromServer = Opened | Done | Swept | Probed | Refused
ToWorker = LoadLm | LoadModule | Build | Step | Run | Save | Restore | Draw | Call | Profile
FromWorker = Ready | Tokens | Moved | Drawn | Called | Packed | Built | Profiled | Failed

TO_SERVER = msgspec.msgpack.Decoder(ToServer)
FROM_SERVER = msgspec.msgpack.Decoder(FromServer)
TO_WORKER = msgspec.msgpack.Decoder(ToWorker)
FROM_WORKER = msgspec.msgpack.Decoder(FromWorker)
_ENCODER = msgspec.msgpack.Encoder()
T = TypeVar("T")


def send(sock: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    """Write one message; descriptors travel with its first byte. Raises `Gone`, `Nonsense` if it is too large."""
    send_frame(sock, frame(message), descriptors)


def frame(message: Message) -> bytes:
    """A message as it is written; `Nonsense` if it is too large."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_FRAME:
        raise Nonsense(f"a message of {len(body):,} bytes is over the limit of {MAX_FRAME:,}")
    return len(body).to_bytes(HEADER, "little") + body


def send_frame(sock: socket.socket, data: bytes, descriptors: tuple[int, ...] = ()) -> None:
    """Write a whole frame. Raises `Gone`."""
    try:
        sent = socket.send_fds(sock, [data], list(descriptors)) if descriptors else 0
        sock.sendall(memoryview(data)[sent:])
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Gone(str(error)) from None


def receive(
    sock: socket.socket, decoder: "msgspec.msgpack.Decoder[T]", until: float | None = None, most: int = MAX_FRAME
) -> T:
    """Read one frame of at most `most` bytes. Raises `Gone`, `Nonsense`, or `TimeoutError` once the monotonic clock has
    passed `until`.
    """
    size = int.from_bytes(_exactly(sock, HEADER, until), "little")
    if size > most:
        raise Nonsense(f"a frame claims {size:,} bytes, over the limit of {most:,}")
    return decode(_exactly(sock, size, until), decoder)


def receive_with_descriptors(
    sock: socket.socket, decoder: "msgspec.msgpack.Decoder[T]", most: int
) -> tuple[T, list[int]]:
    """Like `receive`, for a frame that may carry descriptors."""
    try:
        first, descriptors, _, _ = socket.recv_fds(sock, HEADER, most)
    except ConnectionResetError:
        first, descriptors = b"", list[int]()
    if not first:
        raise Gone("closed")
    head = first + (_exactly(sock, HEADER - len(first)) if len(first) < HEADER else b"")
    size = int.from_bytes(head, "little")
    if size > MAX_FRAME:
        raise Nonsense(f"a frame claims {size:,} bytes, over the limit of {MAX_FRAME:,}")
    return decode(_exactly(sock, size), decoder), list(descriptors)


def decode(body: bytes | bytearray, decoder: "msgspec.msgpack.Decoder[T]") -> T:
    """One message from the bytes of a frame."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise Nonsense(f"not a message: {error}") from None


def _exactly(sock: socket.socket, count: int, until: float | None = None) -> bytearray:
    """`count` bytes; the deadline holds for all of them, however slowly they trickle. Memory grows with what arrives."""
    buffer = bytearray()
    while len(buffer) < count:
        if until is not None:
            sock.settimeout(max(1e-6, until - time.monotonic()))
        try:
            part = sock.recv(min(count - len(buffer), PIECE))
        except (ConnectionResetError, BrokenPipeError):
            part = b""
        if not part:
            raise Gone("closed")
        buffer += part
    return buffer
