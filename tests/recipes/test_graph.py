"""The captured forward against the stock one; without a device its decode step runs as it is, with one it is replayed."""

from pathlib import Path

import pytest
import torch

from engine.tiny import LIMITS, SPEC
from reforward.models import llama
from reforward.models.shapes import expected_shapes
from reforward.runtime.bind import load_forward
from reforward.runtime.forward import Segment
from reforward.runtime.lm import LmHost

FOLDER = Path(__file__).parents[2] / "recipes" / "llama" / "graph"
PROMPTS = ([5, 17, 900, 3000], [8, 9])
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def host(forward: type, weights: dict[str, torch.Tensor]) -> LmHost:
    return LmHost(forward, spec=SPEC, weights=weights, packed={}, limits=LIMITS, artifacts=Path(), dtype=torch.float32)


@pytest.fixture
def captured(tmp_path: Path) -> type:
    """The recipe's class."""
    return load_forward({"forward.py": (FOLDER / "forward.py").read_text()}, "forward.py:Forward", tmp_path)


@pytest.mark.parametrize("device", DEVICES)
def test_it_agrees_with_the_stock_forward(captured: type, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    made = torch.Generator().manual_seed(0)
    weights = {
        name: (torch.randn(shape, generator=made) * 0.2).to(device) for name, shape in expected_shapes(SPEC).items()
    }
    stock, ours = host(llama.Forward, weights), host(captured, weights)
    assert (ours.graphs is not None) == (device == "cuda")
    segments = [Segment(slot=slot, start=0, length=len(prompt)) for slot, prompt in enumerate(PROMPTS)]
    answers = []
    for one in (stock, ours):
        first, more = torch.zeros(2, SPEC.vocab), torch.zeros(2 * 4, SPEC.vocab)
        tokens = one.step([*PROMPTS[0], *PROMPTS[1]], segments, [3, 5], first)
        steps = one.run(tokens, [0, 1], [4, 2], 4, more)
        alone = torch.zeros(1, SPEC.vocab)
        again = one.step([steps[3][1]], [Segment(slot=1, start=6, length=1)], [0], alone)
        answers.append((tokens, steps, again, torch.cat((first, more, alone))))
    assert answers[0][:3] == answers[1][:3]
    assert torch.allclose(answers[0][3], answers[1][3], rtol=1e-3, atol=1e-3)
