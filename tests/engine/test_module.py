"""Module subjects through the engine: identity, weights attached without a copy, calls, and a rewrite."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.tiny import DEADLINES, MACHINE
from reforward.domain.candidate import Candidate
from reforward.domain.errors import BadInput, CandidateFailed, EngineLost
from reforward.domain.measurement import Tensor
from reforward.domain.subject import Subject
from reforward.engine import identity as identities
from reforward.engine.client import Source
from reforward.engine.cpu import CpuEngine
from reforward.engine.identity import Identity, module_identity

NETWORK = """
import torch
from torch import nn

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("shift", torch.zeros(4), persistent=False)

    def forward(self, x):
        return {"sum": self.layer(x) + self.shift, "sign": x > 0}
"""
SUBJECT = """
import torch
from network import Network

rewrite = Network

def load():
    torch.manual_seed(3)
    model = Network()
    model.shift.fill_(2)
    return model

def build(cls):
    return cls()

def inputs(generator, tier):
    return (torch.randn(2 if tier == "fast" else 5, 6, generator=generator),)
"""


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("module")
    (folder / "network.py").write_text(NETWORK)
    (folder / "subject.py").write_text(SUBJECT)
    return folder / "subject.py"


@pytest.fixture(scope="module")
def identity(subject: Path) -> Identity:
    return module_identity(str(subject))


@pytest.fixture(scope="module")
def modules(subject: Path, identity: Identity, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuEngine]:
    about = Subject(
        name="net", host="module", weights=identity.weights, stock=identity.stock.id, spec="{}",
        dtype=identity.dtype, depth=1, fast_depth=1,
    )  # fmt: skip
    source = Source(module=str(subject), readable=(str(subject.parent),))
    cache = tmp_path_factory.mktemp("cache")
    opened = CpuEngine(
        source, about, None, threads=1, machine=MACHINE, software=(), cache=cache, deadlines=DEADLINES
    )  # fmt: skip
    yield opened
    opened.close()


def array(tensor: Tensor) -> np.ndarray:
    return np.frombuffer(tensor.data, dtype=tensor.dtype).reshape(tensor.shape)


def test_identity_covers_the_weights_and_the_source(identity: Identity, subject: Path) -> None:
    assert (identity.dtype, identity.nbytes) == ("float32", (6 * 4 + 4 + 4) * 4)
    assert identity.stock.entry == "network.py:Network"
    assert identity.stock.text_of("network.py") == NETWORK
    assert module_identity(str(subject)) == identity


def test_a_call_gives_every_tensor_of_the_tree(modules: CpuEngine, identity: Identity) -> None:
    worker = modules.start_module(modules.prepare(identity.stock))
    try:
        assert worker.watermark == identity.stock.id
        (x,) = worker.draw(7, "fast")
        assert worker.draw(7, "fast") == (x,)
        assert worker.draw(8, "fast") != (x,)
        assert worker.draw(7, "slow")[0].shape == (5, 6)
        outputs = worker.call((x,))
        assert {place: tensor.dtype for place, tensor in outputs.items()} == {
            "output.sum": "float32", "output.sign": "bool",
        }  # fmt: skip
        assert array(outputs["output.sign"]).tolist() == (array(x) > 0).tolist()
        assert outputs["output.sum"].shape == (2, 4)
        assert worker.memory().weights == identity.nbytes
    finally:
        worker.close()


def rewritten(stock: Candidate, old: str, new: str) -> Candidate:
    assert old in NETWORK
    return stock.with_files({"network.py": NETWORK.replace(old, new)})


def test_a_rewrite_runs_on_the_same_weights(modules: CpuEngine, identity: Identity) -> None:
    candidate = rewritten(identity.stock, "self.layer(x) + self.shift", "x @ self.layer.weight.T + self.layer.bias + 2")
    stock = modules.start_module(modules.prepare(identity.stock))
    worker = modules.start_module(modules.prepare(candidate))
    try:
        drawn = stock.draw(1, "slow")
        wanted, made = stock.call(drawn)["output.sum"], worker.call(drawn)["output.sum"]
        assert worker.watermark == candidate.id
        assert np.allclose(array(wanted), array(made), atol=1e-6)
    finally:
        stock.close()
        worker.close()


@pytest.mark.parametrize(
    ("old", "new", "stage", "words"),
    [
        ("nn.Linear(6, 4)", "nn.Linear(6, 5)", "load", "shape"),
        ("self.layer =", "self.other =", "load", "other"),
        ("return {", "return 5; {", "output", "int"),
        ("self.layer(x) + self.shift", "self.shift.add_(1)", "run", "SIGSEGV"),
        ('"sum"', '"\\ud800"', "run", "surrogates not allowed"),
        ("self.layer(x) + self.shift", "torch.zeros(1 << 26).expand(2, -1)", "run", "over the limit"),
    ],
)
def test_a_broken_rewrite(modules: CpuEngine, identity: Identity, old: str, new: str, stage: str, words: str) -> None:
    stock = modules.start_module(modules.prepare(identity.stock))
    drawn = stock.draw(1, "fast")
    stock.close()
    with pytest.raises(CandidateFailed) as caught:
        _load_and_call(modules, rewritten(identity.stock, old, new), drawn)
    assert caught.value.stage == stage
    assert words in caught.value.reason


SEND = """
import os, socket
from reforward.engine import wire

def forge(**about):
    data = wire.TensorData(**{"dtype": "float32", "shape": (2, 4), "data": bytes(32)} | about)
    for number in range(3, 64):
        try: sock = socket.socket(fileno=os.dup(number))
        except OSError: continue
        wire.send(sock, wire.Called(outputs={"output.sum": data}))
    import time; time.sleep(60)
"""


@pytest.mark.parametrize(
    "about",
    ["data=bytes(31)", "shape=(10**9,)", "dtype='object'", "shape=(2**62, 2**62)", "dtype='float64'", "shape=(-2, -4)"],
)
def test_a_forged_tensor_ends_in_the_engine(modules: CpuEngine, identity: Identity, about: str) -> None:
    """What reached the judge as a tensor would raise there, in the controller."""
    stock = modules.start_module(modules.prepare(identity.stock))
    drawn = stock.draw(1, "fast")
    stock.close()
    forged = NETWORK.replace("        return {", f"        forge({about}); return {{").replace(
        "\nclass", SEND + "\nclass"
    )
    with pytest.raises(CandidateFailed, match="talks nonsense"):
        _load_and_call(modules, identity.stock.with_files({"network.py": forged}), drawn)


def _load_and_call(engine: CpuEngine, candidate: Candidate, drawn: tuple[Tensor, ...]) -> None:
    engine.start_module(engine.prepare(candidate)).call(drawn)


def test_a_subject_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "subject.py").write_text("import nowhere\n")
    with pytest.raises(BadInput, match="nowhere"):
        module_identity(str(tmp_path / "subject.py"))


def test_a_subject_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "subject.py").write_text("")
    reference = str(tmp_path / "subject.py")
    with pytest.raises(BadInput) as caught:
        module_identity(reference)
    assert str(caught.value).startswith(f"subject {reference!r} cannot be loaded: has no load()")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nos._exit(0)\n", "ended without saying what it is"),
        ("raise SystemExit(3)\n", "exit code 3"),
        ("import atexit\natexit.register(print, 'bye')\n" + SUBJECT, None),
    ],
)
def test_a_subject_that_ends_or_prints(tmp_path: Path, text: str, words: str | None) -> None:
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "subject.py").write_text(text)
    if words is None:
        assert module_identity(str(tmp_path / "subject.py")).stock.entry == "network.py:Network"
        return
    with pytest.raises(BadInput, match=words):
        module_identity(str(tmp_path / "subject.py"))


def test_a_subject_that_never_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "subject.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(identities, "TIMEOUT_S", 3)
    with pytest.raises(BadInput, match="does not load within 3 s"):
        module_identity(str(tmp_path / "subject.py"))


def test_a_subject_that_fails_after_it_was_known(tmp_path: Path) -> None:
    about = Subject(name="x", host="module", weights="", stock="", spec="", dtype="", depth=1, fast_depth=1)
    source = Source(module=str(tmp_path / "subject.py"))
    with pytest.raises(EngineLost, match="does not exist"):
        CpuEngine(source, about, None, threads=1, machine=MACHINE, software=(), cache=tmp_path)
