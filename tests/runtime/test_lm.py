"""The host of language models: limits, depth, packing, greedy tokens, and forwards that run by themselves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models import tiny
from reforward.domain.errors import CandidateFailed
from reforward.domain.spec import Segment
from reforward.models.llama import Forward
from reforward.runtime.forward import Build, StateTensor
from reforward.runtime.lm import LmHost, greedy, pack, truncate

SPEC = tiny.spec("qwen3")


def hosted(forward: type, **changes: Any) -> LmHost:
    settings: dict[str, Any] = {
        "spec": SPEC, "weights": tiny.weights("qwen3"), "packed": {}, "limits": tiny.LIMITS, "artifacts": Path(),
        "dtype": torch.float32,
    }  # fmt: skip
    return LmHost(forward, **settings | changes)


def test_state_is_allocated_as_asked_and_zeroed() -> None:
    seen: list[Build] = []

    class Asking(Forward):
        @staticmethod
        def state(spec: Any, limits: Any, dtype: torch.dtype) -> tuple[StateTensor, ...]:
            return (StateTensor(name="a", shape=(5, limits.length), dtype=torch.int16, layout="x"),)

        def __init__(self, build: Build) -> None:
            seen.append(build)

    host = hosted(Asking)
    assert seen[0].state["a"].shape == (tiny.LIMITS.slots, 5, tiny.LIMITS.length)
    assert seen[0].state["a"].dtype == torch.int16
    assert not seen[0].state["a"].any()
    assert host.state_bytes == tiny.LIMITS.slots * 5 * tiny.LIMITS.length * 2
    assert seen[0].weights["model.norm.weight"].data_ptr() == tiny.weights("qwen3")["model.norm.weight"].data_ptr()


def test_state_may_not_be_named_twice() -> None:
    class Twice(Forward):
        @staticmethod
        def state(spec: Any, limits: Any, dtype: torch.dtype) -> tuple[StateTensor, ...]:
            return (StateTensor(name="a", shape=(1,), dtype=dtype, layout="x"),) * 2

    with pytest.raises(CandidateFailed, match="names a tensor twice"):
        hosted(Twice)


def test_the_first_layers_are_a_model() -> None:
    spec, weights = truncate(SPEC, tiny.weights("qwen3"), 1)
    assert spec == replace(SPEC, layers=1)
    assert {name.split(".")[2] for name in weights if name.startswith("model.layers.")} == {"0"}
    assert {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"} <= set(weights)
    tokens = tiny.text(1, 12)
    shallow = tiny.whole(hosted(Forward, spec=spec, weights=weights), tokens)
    assert (shallow - tiny.whole(hosted(Forward), tokens)).abs().max() > 0.1
    full, kept = truncate(SPEC, tiny.weights("qwen3"), SPEC.layers)
    assert (full, kept.keys()) == (SPEC, tiny.weights("qwen3").keys())


def test_greedy_takes_the_first_of_equal_maxima() -> None:
    rows = torch.zeros(3, 49152)
    rows[0, [40000, 31, 4097]] = 5.0
    rows[1, [49151, 8]] = 1e-30
    assert greedy(rows) == [31, 8, 0]


@pytest.mark.parametrize(
    "segment",
    [Segment(slot=3, start=0, length=2), Segment(slot=0, start=63, length=2), Segment(slot=0, start=0, length=3)],
)
def test_what_is_beyond_the_limits_is_our_own_mistake(segment: Segment) -> None:
    with pytest.raises(AssertionError):
        hosted(Forward).step([1, 2], [segment], [1], torch.empty(1, SPEC.vocab))


class Running(Forward):
    """Runs by itself, through its own step."""

    short = False

    def run(
        self, last: Tensor, slots: Tensor, positions: Tensor, steps: int, tokens: Tensor, logits: Tensor, counts: Tensor
    ) -> None:
        from reforward.runtime.lm import make_batch

        counts.fill_(steps - self.short)
        for step in range(steps):
            segments = [
                Segment(slot=int(s), start=int(p) + step, length=1) for s, p in zip(slots, positions, strict=True)
            ]
            self.step(make_batch(last.tolist(), segments, range(len(segments)), tiny.LIMITS, last.device), logits[step])
            last = tokens[step] = logits[step].argmax(-1).int()


def decoded(forward: type) -> tuple[list[list[int]], Tensor]:
    host, logits = hosted(forward), torch.empty(8, SPEC.vocab)
    tiny.step(host, tiny.text(1, 9), [(0, 0, 5), (2, 0, 4)], [])
    return host.run([3, 4], [0, 2], [5, 4], 4, logits), logits


def test_run_is_repeated_steps() -> None:
    stepped, rows = decoded(Forward)
    ran, own_rows = decoded(Running)
    assert ran == stepped
    assert torch.equal(own_rows, rows)
    assert [len(step) for step in ran] == [2] * 4


def test_run_may_not_stop_early() -> None:
    class Short(Running):
        short = True

    with pytest.raises(CandidateFailed, match=r"produced \[3, 3\] tokens where 4 each"):
        decoded(Short)


def packing(make: Any) -> type:
    return type("Packing", (Forward,), {"pack": staticmethod(make)})


def test_packs_are_fresh_and_contiguous() -> None:
    weights = tiny.weights("qwen3")
    name = "model.layers.0.mlp.up_proj.weight"
    made = pack(packing(lambda spec, w: {"up": (w[name] + 0.0).t(), "count": torch.tensor(spec.layers)}), SPEC, weights)
    assert made["up"].is_contiguous()
    assert torch.equal(made["up"], weights[name].t())
    assert int(made["count"]) == SPEC.layers
    assert pack(Forward, SPEC, weights) == {}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda spec, w: {"a": w["model.norm.weight"][:2]}, "a view of a weight under 'a'"),
        (lambda spec, w: {"a": [1, 2]}, "a list under 'a'"),
        (lambda spec, w: [1], "a list, not a mapping"),
        (lambda spec, w: {"a": torch.ones(3).to_sparse()}, "not plain and beside"),
        (lambda spec, w: {"a": torch.ones(3, device="meta")}, "not plain and beside"),
    ],
)
def test_wrong_packs_are_refused(make: Any, words: str) -> None:
    with pytest.raises(CandidateFailed, match=words) as caught:
        pack(packing(make), SPEC, tiny.weights("qwen3"))
    assert caught.value.stage == "pack"
