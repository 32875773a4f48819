# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
"""The recipe's forward: the plain part against the stock forward here, the whole of it on a GPU that it is written for."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from reforward.domain.errors import BadInput
from reforward.domain.spec import Limits, ModelSpec, Segment
from reforward.models.llama import Forward as Stock
from reforward.runtime.forward import Batch, Build

SMALL = ModelSpec(
    family="llama",
    layers=2,
    hidden=128,
    heads=4,
    kv_heads=2,
    head_dim=32,
    intermediate=256,
    vocab=96,
    rms_eps=1e-5,
    rope_theta=10000.0,
    tied=True,
)
ONE_B = replace(SMALL, hidden=2048, heads=32, kv_heads=8, head_dim=64, intermediate=8192, vocab=128256)
LIMITS = Limits(slots=4, length=384, tokens=512, rows=512, steps=8)


def random_weights(spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    made = torch.Generator(device=device).manual_seed(11)

    def matrix(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, generator=made, device=device) * columns**-0.5).to(dtype)

    kv = spec.kv_heads * spec.head_dim
    weights = {"model.embed_tokens.weight": matrix(spec.vocab, spec.hidden)}
    weights["model.norm.weight"] = 1 + matrix(1, spec.hidden)[0]
    for layer in range(spec.layers):
        own = f"model.layers.{layer}"
        weights[f"{own}.input_layernorm.weight"] = 1 + matrix(1, spec.hidden)[0]
        weights[f"{own}.post_attention_layernorm.weight"] = 1 + matrix(1, spec.hidden)[0]
        weights[f"{own}.self_attn.q_proj.weight"] = matrix(spec.hidden, spec.hidden)
        weights[f"{own}.self_attn.k_proj.weight"] = matrix(kv, spec.hidden)
        weights[f"{own}.self_attn.v_proj.weight"] = matrix(kv, spec.hidden)
        weights[f"{own}.self_attn.o_proj.weight"] = matrix(spec.hidden, spec.hidden)
        weights[f"{own}.mlp.gate_proj.weight"] = matrix(spec.intermediate, spec.hidden)
        weights[f"{own}.mlp.up_proj.weight"] = matrix(spec.intermediate, spec.hidden)
        weights[f"{own}.mlp.down_proj.weight"] = matrix(spec.hidden, spec.intermediate)
    return weights


def build_of(spec: ModelSpec, weights: dict[str, Tensor], packed: dict[str, Tensor], artifacts: Path) -> Build:
    sample = weights["model.norm.weight"]
    state = {
        tensor.name: torch.zeros((LIMITS.slots, *tensor.shape), dtype=tensor.dtype, device=sample.device)
        for tensor in Stock.state(spec, LIMITS, sample.dtype)
    }
    return Build(
        spec=spec,
        weights=weights,
        packed=packed,
        state=state,
        limits=LIMITS,
        artifacts=artifacts,
        device=sample.device,
        dtype=sample.dtype,
    )


def batch_of(device: torch.device, vocab: int, *segments: Segment) -> Batch:
    total = sum(s.length for s in segments)
    made = torch.Generator(device=device).manual_seed(sum(s.start * 7 + s.length for s in segments))

    def numbers(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    return Batch(
        tokens=torch.randint(0, vocab, (total,), generator=made, device=device, dtype=torch.int32),
        segments=segments,
        slot=numbers([s.slot for s in segments]),
        start=numbers([s.start for s in segments]),
        length=numbers([s.length for s in segments]),
        rows=numbers(list(range(total))),
    )


def calls(device: torch.device, vocab: int) -> list[Batch]:
    """Prefill of two slots in one call, a chunk beside a new slot, a mixed batch, decode of three."""
    return [
        batch_of(device, vocab, Segment(slot=0, start=0, length=5), Segment(slot=2, start=0, length=9)),
        batch_of(device, vocab, Segment(slot=0, start=5, length=7), Segment(slot=1, start=0, length=1)),
        batch_of(device, vocab, Segment(slot=2, start=9, length=1), Segment(slot=0, start=12, length=3)),
        batch_of(device, vocab, *(Segment(slot=s, start=at, length=1) for s, at in ((0, 15), (1, 1), (2, 10)))),
    ]


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


def test_the_plain_part_gives_the_stock_logits(recipe: Any) -> None:
    device = torch.device("cpu")
    weights = random_weights(SMALL, device, torch.float32)
    stock = Stock(build_of(SMALL, weights, {}, Path()))
    plain = recipe.load("plain").Plain(build_of(SMALL, weights, {}, Path()))
    for batch in calls(device, SMALL.vocab):
        expected, got = (torch.full((batch.rows.numel(), SMALL.vocab), float("nan")) for _ in range(2))
        stock.step(batch, expected)
        plain.step(batch, got)
        assert relative(got, expected) < 1e-5


def test_small_and_large_attention_agree(recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = recipe.load("plain")
    made = torch.Generator().manual_seed(0)
    for asked, held in ((1, 9), (5, 9), (9, 9)):
        q = torch.randn(asked, 8, 16, generator=made)
        keys, values = (torch.randn(2, held, 16, generator=made) for _ in range(2))
        small = plain.mix(q, keys, values)
        monkeypatch.setattr(plain, "SMALL", 0)
        assert torch.allclose(small, plain.mix(q, keys, values), atol=1e-5)
        monkeypatch.undo()


def test_another_shape_is_refused_with_the_reason(recipe: Any) -> None:
    with pytest.raises(BadInput, match="hidden = 128"):
        recipe.load("engine").check_shape(SMALL, torch.bfloat16)
    with pytest.raises(BadInput, match="float32"):
        recipe.load("engine").check_shape(ONE_B, torch.float32)
    recipe.load("engine").check_shape(ONE_B, torch.bfloat16)


def test_the_state_is_that_of_the_stock_forward(recipe: Any) -> None:
    assert recipe.load("forward").Forward.state(SMALL, LIMITS, torch.bfloat16) == Stock.state(
        SMALL, LIMITS, torch.bfloat16
    )


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_kernel_compiles(recipe: Any, tmp_path: Path) -> None:
    recipe.load("build").build(tmp_path)
    assert (tmp_path / "persistent.so").stat().st_size > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
class TestOnTheDevice:
    """Two layers of the full shape, against the stock forward in fp32."""

    @pytest.fixture
    def forwards(self, recipe: Any, tmp_path: Path) -> tuple[Any, Stock]:
        torch.backends.cuda.matmul.allow_tf32 = False
        device = torch.device("cuda")
        weights = random_weights(ONE_B, device, torch.bfloat16)
        recipe.load("build").build(tmp_path)
        module = recipe.load("forward").Forward
        wide = {name: tensor.float() for name, tensor in weights.items()}
        fast = module(build_of(ONE_B, weights, module.pack(ONE_B, weights), tmp_path))
        return fast, Stock(build_of(ONE_B, wide, {}, Path()))

    def test_steps_of_any_batch(self, forwards: tuple[Any, Stock]) -> None:
        fast, exact = forwards
        single = [
            batch_of(torch.device("cuda"), ONE_B.vocab, Segment(slot=2, start=11 + i, length=1)) for i in range(3)
        ]
        for batch in (*calls(torch.device("cuda"), ONE_B.vocab), *single):
            expected, got = (torch.empty(batch.rows.numel(), ONE_B.vocab, device="cuda") for _ in range(2))
            exact.step(batch, expected)
            fast.step(batch, got)
            assert relative(got, expected) < 2e-2

    @pytest.mark.parametrize("start", [1, 63, 64, 250, 257, 375])
    def test_a_run_of_one_follows_the_reference(self, forwards: tuple[Any, Stock], start: int) -> None:
        """Lengths on both sides of each change of how the cache is split; another slot than the first."""
        self.check_run(forwards, [(3, start)], steps=8)

    @pytest.mark.parametrize("count", [2, 4])
    def test_a_run_of_several(self, forwards: tuple[Any, Stock], count: int) -> None:
        self.check_run(forwards, [(slot, 3 + slot) for slot in range(count)], steps=3)

    def check_run(self, forwards: tuple[Any, Stock], slots: list[tuple[int, int]], steps: int) -> None:
        fast, exact = forwards
        prompts = batch_of(
            torch.device("cuda"), ONE_B.vocab, *(Segment(slot=s, start=0, length=length) for s, length in slots)
        )
        unused = torch.empty(prompts.rows.numel(), ONE_B.vocab, device="cuda")
        fast.step(prompts, unused)
        exact.step(prompts, unused)
        last = torch.arange(5, 5 + len(slots), dtype=torch.int32, device="cuda")
        numbers = [torch.tensor(column, dtype=torch.int32, device="cuda") for column in zip(*slots, strict=True)]
        tokens = torch.full((steps, len(slots)), -1, dtype=torch.int32, device="cuda")
        logits = torch.full((steps, len(slots), ONE_B.vocab), float("nan"), device="cuda")
        counts = torch.zeros(len(slots), dtype=torch.int32, device="cuda")
        fast.run(last, numbers[0], numbers[1], steps, tokens, logits, counts)
        assert counts.tolist() == [steps] * len(slots)
        assert torch.equal(logits.argmax(-1).to(torch.int32), tokens)
        for i in range(steps):
            batch = batch_of(
                torch.device("cuda"), ONE_B.vocab, *(Segment(slot=s, start=at + i, length=1) for s, at in slots)
            )
            expected = torch.empty(len(slots), ONE_B.vocab, device="cuda")
            exact.step(replace(batch, tokens=last), expected)
            assert relative(logits[i], expected) < 2e-2
            last = tokens[i]
