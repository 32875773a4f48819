"""Passes for any module: what they take for a constant, what they leave alone, and that results keep their bits."""

# pyright: reportUnknownMemberType=false

import types
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from reforward.domain.candidate import Candidate, SourceFile
from reforward.propose.passes.base import Pass
from reforward.propose.passes.compiled import COMPILED_MODULE
from reforward.propose.passes.copies import NO_COPIES
from reforward.propose.passes.memoised import MEMOISED
from reforward.propose.passes.threads import ONE_THREAD

EAGER = (MEMOISED, NO_COPIES, ONE_THREAD)
ALL = (*EAGER, COMPILED_MODULE)

MODEL = '''
import math

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = int(size)
        self.grown = int(size)
        self.grown = self.grown + 1
        self.linear = nn.Linear(2 * self.size, 1)

    def features(self, step: int, *, device=None, dtype=None) -> torch.Tensor:
        """Of the step alone."""
        k = torch.arange(self.size, device=device, dtype=torch.float32)
        angle = math.log2(float(step)) / torch.pow(2.0, k)
        return torch.cat([torch.sin(angle), torch.cos(angle)]).to(dtype)

    def of_data(self, x: torch.Tensor, step: int) -> torch.Tensor:
        return x + torch.arange(x.shape[0])

    def noisy(self, step: int) -> torch.Tensor:
        return torch.arange(step) + torch.rand(step)

    def of_state(self, step: int) -> torch.Tensor:
        return torch.arange(step) * self.grown

    def of_weights(self, step: int) -> torch.Tensor:
        return self.linear(torch.ones(2 * self.size)) * step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in (1, 2, 4):
            x = x * self.linear(self.features(step, dtype=x.dtype).clone()).contiguous()
        return x
'''


def candidate(text: str, host: str = "module") -> Candidate:
    files = (SourceFile(path="model.py", text=text.lstrip()),)
    return Candidate(host=host, entry="model.py:Scale", files=files)  # type: ignore[arg-type]


def text_of(made: Candidate | None) -> str:
    assert made is not None
    return made.text_of("model.py") or ""


def made_by(text: str) -> nn.Module:
    module = types.ModuleType("made_model")
    exec(compile(text, "made_model", "exec"), module.__dict__)
    torch.manual_seed(3)
    factory: Callable[[int], nn.Module] = module.Scale
    return factory(4)


def test_only_functions_of_numbers_are_memoised() -> None:
    text = text_of(MEMOISED.apply(candidate(MODEL)))
    assert text.count("@functools.cache") == 1
    assert "    @functools.cache\n    def features(" in text
    assert text.startswith("import math\nimport functools\n")


@pytest.mark.parametrize("one", EAGER, ids=[one.name for one in EAGER])
def test_results_keep_their_bits_in_every_call(one: Pass) -> None:
    threads = torch.get_num_threads()
    stock, changed = made_by(MODEL), made_by(text_of(one.apply(candidate(MODEL))))
    changed.load_state_dict(stock.state_dict())
    x = torch.randn(5, generator=torch.Generator().manual_seed(1))
    try:
        with torch.inference_mode():
            expected: Tensor = stock(x)
            assert all(torch.equal(expected, changed(x)) for _ in range(3))
    finally:
        torch.set_num_threads(threads)


def test_copies_go_from_methods_but_not_from_functions_beside_them() -> None:
    text = MODEL + "\n\ndef load(state):\n    return state.clone()\n"
    made = text_of(NO_COPIES.apply(candidate(text)))
    assert made.count(".clone()") == 1
    assert ".contiguous()" not in made


@pytest.mark.parametrize("one", ALL, ids=[one.name for one in ALL])
def test_a_pass_has_nothing_to_do_twice(one: Pass) -> None:
    made = one.apply(candidate(MODEL))
    assert made is not None
    assert one.apply(made) is None


def test_compiling_a_whole_module_is_slow_and_for_modules_only() -> None:
    assert COMPILED_MODULE.slow
    assert COMPILED_MODULE.bits == "other"
    assert "self.forward = torch.compile(self.forward)" in text_of(COMPILED_MODULE.apply(candidate(MODEL)))
    assert COMPILED_MODULE.apply(candidate(MODEL, host="lm")) is None
