"""Frames: what goes in comes out, and nothing else gets through."""

import socket
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reforward.engine import wire

numbers = st.integers(0, 2**31)
steps = st.builds(
    wire.Step,
    tokens=st.lists(numbers, max_size=20).map(tuple),
    segments=st.lists(st.tuples(numbers, numbers, numbers), max_size=5).map(tuple),
    rows=st.lists(numbers, max_size=5).map(tuple),
    first=numbers,
)
calls = st.builds(
    wire.Call,
    inputs=st.lists(
        st.builds(wire.TensorData, dtype=st.text(max_size=8), shape=st.tuples(numbers), data=st.binary(max_size=64)),
        max_size=3,
    ).map(tuple),
)


@given(st.one_of(steps, calls))
def test_a_message_survives_the_journey(message: wire.Message) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, message)
        assert wire.receive(theirs, wire.TO_WORKER) == message


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_noise_is_nonsense_or_a_message(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.close()
        try:
            found = wire.receive(theirs, wire.FROM_WORKER)
        except (wire.Gone, wire.Nonsense):
            return
        assert isinstance(found, wire.Message)


@given(steps, st.data())
def test_one_flipped_byte_gives_a_message_or_nonsense(message: wire.Step, data: st.DataObject) -> None:
    body = bytearray(wire.msgspec.msgpack.encode(message))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = wire.decode(body, wire.TO_WORKER)
    except wire.Nonsense:
        return
    assert isinstance(found, wire.Message)


@pytest.mark.parametrize(
    "document",
    [
        {"type": "Tokens", "steps": [], "more": 1},
        {"type": "Nobody"},
        {"type": "Tokens"},
        {"type": "Tokens", "steps": [["1"]]},
        {"type": "Failed", "stage": "elsewhere", "reason": "", "log": ""},
        [],
        7,
    ],
)
def test_what_is_no_message_is_refused(document: object) -> None:
    with pytest.raises(wire.Nonsense):
        wire.decode(wire.msgspec.msgpack.encode(document), wire.FROM_WORKER)


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall((wire.MAX_FRAME + 1).to_bytes(wire.HEADER, "little"))
        with pytest.raises(wire.Nonsense, match="over the limit"):
            wire.receive(theirs, wire.FROM_WORKER)


def test_the_deadline_holds_for_the_whole_frame() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall((1000).to_bytes(wire.HEADER, "little"))
        ended = threading.Event()
        trickle = threading.Thread(target=_trickle, args=(ours, ended))
        trickle.start()
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            wire.receive(theirs, wire.FROM_WORKER, until=begun + 0.3)
        assert time.monotonic() - begun < 2
        ended.set()
        trickle.join()


def _trickle(sock: socket.socket, ended: threading.Event) -> None:
    while not ended.wait(0.05):
        sock.send(b"x")


def test_a_peer_that_ends_with_an_answer_unread_is_gone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, wire.Done())
        theirs.close()
        with pytest.raises(wire.Gone):
            wire.receive_with_descriptors(ours, wire.TO_SERVER, 4)
