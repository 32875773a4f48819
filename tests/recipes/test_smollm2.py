"""The native step of SmolLM2's recipe against the stock forward: its error against float64 is the stock's own at most."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from reforward.domain.spec import ModelSpec
from reforward.models import llama
from reforward.models.shapes import expected_shapes
from reforward.runtime.bind import load_forward
from reforward.runtime.forward import Limits, Segment
from reforward.runtime.lm import LmHost
from reforward.runtime.native import COMPILER, compile_shared

FOLDER = Path(__file__).parents[2] / "recipes" / "smollm2-135m" / "cpu"
SPEC = ModelSpec(
    family="llama",
    layers=2,
    hidden=128,
    heads=6,
    kv_heads=2,
    head_dim=64,
    intermediate=192,
    vocab=1001,
    rms_eps=1e-5,
    rope_theta=1e5,
    tied=True,
)
LIMITS = Limits(slots=9, length=96, tokens=128, rows=64, steps=4)

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER}")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build stage leaves."""
    folder = tmp_path_factory.mktemp("artifacts")
    compile_shared([FOLDER / "step.cpp"], folder, "step")
    return folder


@pytest.fixture
def forward(tmp_path: Path) -> Iterator[type]:
    """The recipe's class; afterwards its generic names are forgotten."""
    modules, path = set(sys.modules), list(sys.path)
    files = {file.name: file.read_text() for file in FOLDER.iterdir() if file.suffix in (".py", ".cpp", ".h")}
    yield load_forward(files, "forward.py:Forward", tmp_path)
    sys.path[:] = path
    for name in {"forward", "decoder"} & (set(sys.modules) - modules):
        del sys.modules[name]


class Played:
    """A script of ragged calls, and all rows that came back, [rows, vocab] in float64."""

    def __init__(self, host: LmHost) -> None:
        self.host, self.rows = host, list[torch.Tensor]()
        self.made = torch.Generator().manual_seed(1)
        self.step(Segment(slot=0, start=0, length=5), Segment(slot=1, start=0, length=70), wanted=(4, 74))
        self.step(*(Segment(slot=slot, start=0, length=1) for slot in range(2, 9)))
        for more in range(2):  # nine sequences at once: two passes over the weights
            self.step(
                Segment(slot=0, start=5 + more, length=1),
                Segment(slot=1, start=70 + more, length=1),
                *(Segment(slot=slot, start=1 + more, length=1) for slot in range(2, 9)),
            )
        self.step(Segment(slot=0, start=7, length=1))
        self.step(Segment(slot=3, start=0, length=17), Segment(slot=1, start=72, length=1), wanted=(0, 16, 17))
        self.step(Segment(slot=0, start=8, length=1), wanted=())
        self.step(Segment(slot=0, start=9, length=1))

    def step(self, *segments: Segment, wanted: tuple[int, ...] | None = None) -> None:
        """One call with drawn tokens."""
        count = sum(segment.length for segment in segments)
        tokens = torch.randint(0, SPEC.vocab, (count,), generator=self.made).tolist()
        rows = range(count) if wanted is None else wanted
        logits = torch.full((len(rows), SPEC.vocab), torch.nan)
        self.host.step(tokens, segments, rows, logits)
        self.rows.append(logits.double())

    def errors(self, oracle: "Played") -> torch.Tensor:
        """RMS of each row's difference."""
        return (torch.cat(self.rows) - torch.cat(oracle.rows)).pow(2).mean(-1).sqrt()


def host(forward: type, artifacts: Path, dtype: torch.dtype, *, oracle: bool = False, spec: ModelSpec = SPEC) -> LmHost:
    made = torch.Generator().manual_seed(0)
    weights = {
        name: (torch.randn(shape, generator=made) * 0.1).to(dtype) for name, shape in expected_shapes(spec).items()
    }
    return LmHost(
        forward, spec=spec, weights=weights, packed={}, limits=LIMITS, artifacts=artifacts, dtype=dtype, oracle=oracle
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_its_error_is_that_of_the_stock_forward(forward: type, artifacts: Path, dtype: torch.dtype) -> None:
    oracle = Played(host(llama.Forward, artifacts, dtype, oracle=True))
    stock, ours = (Played(host(one, artifacts, dtype)).errors(oracle) for one in (llama.Forward, forward))
    assert ours.isfinite().all()
    assert (ours / stock).log().mean().exp() < 1.1
    assert (ours / stock).max() < 2


def test_steps_without_the_host_are_the_same_steps(forward: type, artifacts: Path) -> None:
    one, other = (host(forward, artifacts, torch.float32) for _ in range(2))
    prompt = [3, 5, 8]
    for each in (one, other):
        each.step(prompt, [Segment(slot=0, start=0, length=3)], [2], torch.zeros(1, SPEC.vocab))
    rows = torch.zeros(4, SPEC.vocab)
    tokens = [step[0] for step in one.run([7], [0], [3], 4, rows)]
    last = 7
    for step, token in enumerate(tokens):
        row = torch.zeros(1, SPEC.vocab)
        last = other.step([last], [Segment(slot=0, start=3 + step, length=1)], [0], row)[0]
        assert last == token
        assert torch.equal(row[0], rows[step])


def test_it_refuses_another_architecture_by_name(forward: type, artifacts: Path) -> None:
    with pytest.raises(ValueError, match="qk_norm"):
        host(forward, artifacts, torch.float32, spec=replace(SPEC, qk_norm=True))
