"""Every pass, alone and in pairs, on the stock forward: it applies, stays readable, and computes the same."""

import ast
import difflib
import shutil
from functools import cache
from itertools import combinations
from typing import cast

import pytest
import torch

from propose.forward_runs import SPECS, greedy_run, hosted, scenario
from reforward.domain.candidate import Candidate, SourceFile
from reforward.models.families import stock_candidate
from reforward.propose.passes import PASSES
from reforward.propose.passes.base import Pass
from reforward.propose.search import combined

STOCK = stock_candidate("llama")
TESTED = [one for one in PASSES if one.apply(STOCK) is not None and not one.slow]
BY_NAME = [pytest.param(one, id=one.name) for one in TESTED]
PAIRS = [pytest.param(pair, id=f"{pair[0].name}+{pair[1].name}") for pair in combinations(TESTED, 2)]


@pytest.fixture(autouse=True)
def _compiler(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    values: list[object] = list(callspec.params.values()) if callspec else []
    passes = [
        one for value in values for one in (cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,))
    ]
    if any(isinstance(one, Pass) and one.needs for one in passes) and shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")


def applied(*passes: Pass) -> Candidate:
    return combined(STOCK, passes)


@cache
def outputs(candidate: Candidate, family: str, dtype: torch.dtype, oracle: bool = False) -> torch.Tensor:
    with hosted(candidate, family, dtype, oracle) as host:
        return scenario(host).double()


def error_ratio(candidate: Candidate, family: str, dtype: torch.dtype) -> float:
    """RMS error against the float64 stock, over the stock's own."""
    truth = outputs(STOCK, family, dtype, oracle=True)
    own, stock = outputs(candidate, family, dtype) - truth, outputs(STOCK, family, dtype) - truth
    return float(own.pow(2).mean().sqrt() / stock.pow(2).mean().sqrt())


def test_the_registry_covers_the_stock_forward() -> None:
    assert len(TESTED) >= 9


@pytest.mark.parametrize("one", BY_NAME)
def test_a_pass_makes_another_tree_that_parses(one: Pass) -> None:
    made = one.apply(STOCK)
    assert made is not None
    assert made.id != STOCK.id
    for file in made.files:
        if file.path.endswith(".py"):
            ast.parse(file.text)


@pytest.mark.parametrize("one", BY_NAME)
def test_a_pass_has_nothing_to_do_twice(one: Pass) -> None:
    assert one.apply(applied(one)) is None


@pytest.mark.parametrize("one", BY_NAME)
def test_a_diff_is_small_enough_to_review(one: Pass) -> None:
    old, new = (c.text_of("forward.py") or "" for c in (STOCK, applied(one)))
    changed = [line for line in difflib.ndiff(old.splitlines(), new.splitlines()) if line[0] in "+-"]
    assert 1 <= len(changed) <= 70
    assert max(len(line) for line in new.splitlines()) <= 130


@pytest.mark.parametrize("one", BY_NAME)
@pytest.mark.parametrize("family", SPECS)
def test_a_pass_computes_the_same_in_fp32(one: Pass, family: str) -> None:
    if one.bits == "same":
        assert torch.equal(outputs(applied(one), family, torch.float32), outputs(STOCK, family, torch.float32))
    assert error_ratio(applied(one), family, torch.float32) <= 2.0


@pytest.mark.parametrize("one", BY_NAME)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_pass_computes_the_same_in_bf16(one: Pass, family: str) -> None:
    assert error_ratio(applied(one), family, torch.bfloat16) <= 2.0


@pytest.mark.parametrize("pair", PAIRS)
def test_every_pair_composes(pair: tuple[Pass, Pass]) -> None:
    both = applied(*pair)
    assert both.id not in {applied(pair[0]).id, applied(pair[1]).id}
    assert error_ratio(both, "llama", torch.float32) <= 2.0


def test_all_passes_compose() -> None:
    every = applied(*TESTED)
    for family in SPECS:
        assert error_ratio(every, family, torch.float32) <= 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_runs_agree_with_single_steps(dtype: torch.dtype) -> None:
    every = applied(*TESTED)
    with hosted(every, "qwen2", dtype) as host:
        tokens, logits = greedy_run(host)
    with hosted(every, "qwen2", dtype) as host:
        del type(host.forward).run
        stepped, expected = greedy_run(host)
    assert tokens == stepped
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("one", BY_NAME)
def test_unknown_code_is_left_alone(one: Pass) -> None:
    code = "class Other:\n    def step(self, batch, logits):\n        logits.copy_(self.table[batch.tokens])\n"
    other = Candidate(host="lm", entry="forward.py:Other", files=(SourceFile(path="forward.py", text=code),))
    assert one.apply(other) is None


@pytest.mark.parametrize("one", BY_NAME)
def test_a_tree_that_does_not_parse_is_left_alone(one: Pass) -> None:
    broken = Candidate(host="lm", entry="forward.py:F", files=(SourceFile(path="forward.py", text="class F(:\n"),))
    assert one.apply(broken) is None
