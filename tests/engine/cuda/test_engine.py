"""The engine of a device: the same answers, memory that is shared and watched, and workers that die alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.cuda.card import file_card, open_cuda_engine, real_card
from engine.test_lifecycle import array, weights_of
from engine.test_packs import HEAD, HEAD_BYTES, packing
from engine.test_server import session_of, wait_until_gone
from engine.tiny import LIMITS, SPEC, in_step, stock, variant
from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed, EngineLost, Unavailable
from reforward.domain.spec import Segment
from reforward.engine.cuda.card import Card
from reforward.engine.cuda.driver import Driver
from reforward.engine.cuda.engine import CudaEngine
from reforward.engine.cuda.monitor import Monitor
from reforward.models import llama
from reforward.runtime.lm import LmHost

ONE = ([7], [Segment(slot=0, start=0, length=1)], [0], 0)
STORE = variant(
    "    def __init__(self, build):\n"
    "        super().__init__(build)\n"
    "        self.weight = build.weights['model.norm.weight']\n"
    "    def step(self, batch, logits):\n"
    "        self.weight.add_(1)\n"
    "        super().step(batch, logits)\n"
)
MAP_ANEW = """
    def __init__(self, build):
        import ctypes
        super().__init__(build)
        weight = build.weights['model.norm.weight']
        mapped = ctypes.c_uint64(weight.untyped_storage().data_ptr())
        access = (ctypes.c_int * 3)(1, 0, 3)
        changed = ctypes.CDLL('{driver}').cuMemSetAccess(
            mapped, ctypes.c_size_t({size}), access, ctypes.c_size_t(1)
        )
        assert changed == 0, changed
        weight.add_(1)
"""


@pytest.fixture(scope="module", params=[file_card, pytest.param(real_card, marks=pytest.mark.gpu)])
def card(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Card:
    """Memory files everywhere, the device where there is one."""
    return real_card() if request.param is real_card else file_card(tmp_path_factory.mktemp("card"))


@pytest.fixture(scope="module")
def engine(card: Card, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaEngine]:
    """An engine on the tiny model."""
    opened = open_cuda_engine(card, checkpoint, tmp_path_factory.mktemp("cache"))
    yield opened
    opened.close()


def first_token(engine: CudaEngine, candidate: Candidate) -> list[int]:
    worker = engine.start_lm(engine.prepare(candidate), depth=2, limits=LIMITS)
    try:
        return worker.step(*ONE)
    finally:
        worker.close()


def test_a_worker_computes_what_the_host_computes(engine: CudaEngine, checkpoint: Path) -> None:
    exact = {name: tensor.double() for name, tensor in weights_of(checkpoint).items()}
    host = LmHost(
        llama.Forward, spec=SPEC, weights=exact, packed={}, limits=LIMITS, artifacts=Path(), dtype=torch.float64
    )
    prompt, segments = [5, 17, 900, 3000], [Segment(slot=1, start=0, length=4)]
    wanted, more = torch.zeros(4, SPEC.vocab), torch.zeros(3, SPEC.vocab)
    tokens = host.step(prompt, segments, range(4), wanted)
    continued = host.run(tokens[-1:], [1], [4], 3, more)
    worker = engine.start_lm(engine.prepare(stock()), depth=2, limits=LIMITS)
    try:
        assert worker.step(prompt, segments, range(4), first=2) == tokens
        assert np.allclose(array(worker.rows(2, 4)), wanted.numpy(), rtol=1e-3, atol=1e-3)
        assert worker.run(tokens[-1:], [1], [4], 3, first=0) == continued
        assert np.allclose(array(worker.rows(0, 3)), more.numpy(), rtol=1e-3, atol=1e-3)
    finally:
        worker.close()


def test_what_it_says_of_itself(engine: CudaEngine, card: Card) -> None:
    assert engine.target.launch.device == card.place
    assert engine.target.machine.devices == (Monitor(card).name,)
    assert "seccomp" in engine.target.launch.sandbox
    found = engine.bandwidth()
    assert found.cache_bytes < found.read_bytes_s
    if card.place != "cpu":
        assert 1e11 < found.read_bytes_s < 1e13
    worker = engine.start_lm(engine.prepare(stock()), depth=2, limits=LIMITS)
    try:
        worker.step(*ONE)
        memory = worker.memory()
        assert memory.state == 2 * 2 * LIMITS.slots * LIMITS.length * SPEC.kv_heads * SPEC.head_dim * 4
        assert memory.private > (100 << 20 if card.place == "cpu" else 400 << 20)
    finally:
        worker.close()


def test_packed_tensors_are_made_once_and_used(engine: CudaEngine) -> None:
    candidate = packing(HEAD, use="assert self.packed['head'].shape == (64, 4096) and self.packed['head'].sum() != 0")
    prepared = engine.prepare(candidate)
    assert prepared.packed_bytes == HEAD_BYTES
    assert engine.prepare(candidate).pack_s == 0
    assert first_token(engine, candidate) == first_token(engine, stock())
    engine.sweep()


def test_a_store_to_a_weight_faults_in_that_worker_alone(engine: CudaEngine) -> None:
    expected, server = first_token(engine, stock()), engine.server
    bystander = engine.start_lm(engine.prepare(stock()), depth=2, limits=LIMITS)
    try:
        for _ in range(3):
            with pytest.raises(CandidateFailed, match=r"SIGSEGV|CUDA error"):
                first_token(engine, STORE)
        assert bystander.step(*ONE) == expected
    finally:
        bystander.close()
    assert first_token(engine, stock()) == expected
    assert engine.server is server
    engine.sweep()


def test_a_weight_that_was_mapped_anew_and_changed_is_found(engine: CudaEngine, card: Card) -> None:
    expected = first_token(engine, stock())
    size = Driver(card).whole(engine.server.opened.nbytes if engine.server else 0)
    candidate = variant(MAP_ANEW.format(driver=card.driver, size=size))
    worker = engine.start_lm(engine.prepare(candidate), depth=2, limits=LIMITS)
    with pytest.raises(CandidateFailed, match="memory of the device that all share was changed"):
        worker.pause()
    assert first_token(engine, stock()) == expected
    engine.sweep()


def test_a_paused_worker_goes_on(engine: CudaEngine) -> None:
    worker = engine.start_lm(engine.prepare(stock()), depth=2, limits=LIMITS)
    try:
        before = worker.step(*ONE)
        worker.pause()
        worker.resume()
        assert worker.step(*ONE) == before
    finally:
        worker.close()


@pytest.mark.gpu
def test_device_work_after_the_answer_is_a_failure(engine: CudaEngine, card: Card) -> None:
    """The second answer: at the first, the device loads kernels and waits for all work."""
    if card.place == "cpu":
        pytest.skip("memory files do no work")
    side = in_step(
        "import torch",
        "torch.cuda.synchronize = lambda *_: None",
        "with torch.cuda.stream(torch.cuda.Stream()): torch.cuda._sleep(10_000_000_000)",
    )
    worker = engine.start_lm(engine.prepare(side), depth=2, limits=LIMITS)
    worker.step(*ONE)
    worker.step(*ONE)
    with pytest.raises(CandidateFailed, match="device work went on"):
        worker.pause()
    assert len(first_token(engine, stock())) == 1


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("line", "reason"),
    [("torch.cuda._sleep(10**12)", "no answer within 1 s"), ("torch.empty(1 << 45, device='cuda')", "out of memory")],
)
def test_what_a_kernel_or_an_allocation_may_not_take(engine: CudaEngine, card: Card, line: str, reason: str) -> None:
    if card.place == "cpu":
        pytest.skip("memory files run no kernels")
    worker = engine.start_lm(engine.prepare(in_step("import torch", line)), depth=2, limits=LIMITS)
    worker.step_s = 1.0
    with pytest.raises(CandidateFailed, match=reason):
        worker.step(*ONE)
    assert len(first_token(engine, stock())) == 1
    engine.sweep()


def test_a_device_that_is_not_there_is_named(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(Unavailable, match="no NVIDIA driver"):
        open_cuda_engine(Card(monitor="libnothing.so"), checkpoint, tmp_path)
    files = file_card(tmp_path)
    nowhere = Card(place="cpu", driver=files.driver, monitor=files.monitor, index=1)
    with pytest.raises(EngineLost, match="cuDeviceGet failed"):
        open_cuda_engine(nowhere, checkpoint, tmp_path)


def test_closing_ends_the_holder_too(card: Card, checkpoint: Path, tmp_path: Path) -> None:
    engine = open_cuda_engine(card, checkpoint, tmp_path)
    first_token(engine, stock())
    assert engine.server is not None
    everything = session_of(engine.server.process.pid)
    assert len(everything) >= 2
    engine.close()
    assert wait_until_gone(everything) == []
