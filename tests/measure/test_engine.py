"""Sessions on the real engine: a small random Llama, real worker processes, real times."""

import random
from collections.abc import Iterator

import numpy as np
import pytest

from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract, Numerics
from reforward.domain.measurement import Failed, Measurement
from reforward.domain.record import canonical_json
from reforward.domain.subject import Subject, Tier
from reforward.domain.target import Machine
from reforward.domain.verdict import Verdict
from reforward.domain.workload import Request, Workload
from reforward.engine.cpu import CpuEngine, Source
from reforward.engine.wire import Stored
from reforward.judge.standard import StandardJudge
from reforward.measure.measurer import Measurer
from reforward.models.checkpoint import expected_shapes, read_header, write_safetensors
from reforward.models.families import spec_from_config, stock_candidate

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": True,
}  # fmt: skip
SPEC = spec_from_config(CONFIG)
STOCK = stock_candidate(SPEC.family)
SHAPES = ((40, 6), (9, 12), (300, 4), (21, 8))
STEP = "spec, weights = self.spec, self.weights\n        x ="
WORKLOAD = Workload(
    name="test",
    source="test",
    requests=tuple(Request(arrival_s=0, prompt_tokens=p, output_tokens=o) for p, o in SHAPES),
    weights=(1.0,) * len(SHAPES),
    concurrency=2,
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuEngine]:
    folder = tmp_path_factory.mktemp("tiny")
    draw = np.random.default_rng(0)
    tensors = {name: _weights(draw, name, shape) for name, shape in expected_shapes(SPEC).items()}
    file = folder / "model.safetensors"
    write_safetensors(file, {name: ("F32", values.shape, values.tobytes()) for name, values in tensors.items()})
    subject = Subject(
        name="tiny", host="lm", weights="0", stock=STOCK.id, spec=canonical_json(SPEC), dtype="float32", depth=4,
        fast_depth=2,
    )  # fmt: skip
    stored = tuple(
        Stored(name=e.name, dtype=e.dtype, shape=e.shape, offset=e.offset, nbytes=e.nbytes, file=str(e.file))
        for e in read_header(file)
    )
    machine = Machine(cpu="test", cores=1, isa="generic", memory_gib=1)
    made = CpuEngine(
        Source(tensors=stored), subject, SPEC, threads=1, machine=machine, software=(), cache=folder / "cache"
    )
    yield made
    made.close()


def _weights(draw: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    return (draw.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def letters(text: str) -> list[int]:
    return [byte % 320 for byte in text.encode()]


def changed(*pairs: tuple[str, str], more: str = "") -> Candidate:
    text = STOCK.text_of("forward.py") or ""
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return STOCK.with_files({"forward.py": text + more})


def ruled(
    engine: CpuEngine, candidate: Candidate, tier: Tier, numerics: Numerics = "reassociated", steps: int = 1
) -> tuple[Verdict, Measurement | Failed]:
    contract, judge = Contract(numerics=numerics, fast_pairs=2, min_pairs=2, max_pairs=2), StandardJudge()
    measurer = Measurer(engine, STOCK, contract, encode=letters, draw=random.Random(0), steps=steps)
    facts, outputs = measurer.measure(candidate, STOCK, WORKLOAD, tier, judge.stopping(contract, tier))
    measurer.close()
    return judge.rule(facts, outputs, contract), facts


@pytest.mark.parametrize("tier", ["fast", "slow"])
@pytest.mark.parametrize("numerics", ["reassociated", "bit-exact"])
def test_the_same_work_passes_every_check(engine: CpuEngine, tier: Tier, numerics: Numerics) -> None:
    verdict, facts = ruled(engine, changed(more="\n# another name\n"), tier, numerics)
    assert verdict.reason in ("undecided", "disturbed", "no-gain", "slower", "promising", "faster"), verdict.detail
    assert isinstance(facts, Measurement)
    assert facts.candidate.memory.weights == facts.incumbent.memory.weights > 0
    assert all(sample.seconds > 0 and len(sample.ttft_s) > 0 for sample in facts.samples)


def test_several_steps_in_one_call_are_judged_like_single_ones(engine: CpuEngine) -> None:
    verdict, facts = ruled(engine, changed(more="\n# in runs\n"), "slow", "bit-exact", steps=4)
    assert verdict.reason in ("undecided", "disturbed", "no-gain", "slower", "faster"), verdict.detail
    assert isinstance(facts, Measurement)


def test_another_summation_order_passes_reassociated_alone(engine: CpuEngine) -> None:
    half = "F.linear(x[..., ::2], weight[:, ::2], bias) + F.linear(x[..., 1::2], weight[:, 1::2])"
    candidate = changed(("return F.linear(x, weight, bias)", f"return {half}"))
    assert ruled(engine, candidate, "slow")[0].reason not in ("numerics", "void", "token-mismatch")
    assert ruled(engine, candidate, "slow", "bit-exact")[0].reason == "numerics"


@pytest.mark.parametrize(
    ("tier", "old", "new"),
    [
        ("fast", "logits.copy_(linear(x, head)[batch.rows])", "logits.zero_()"),
        ("slow", "logits.copy_(linear(x, head)[batch.rows])", "logits.normal_()"),
        (
            "fast",
            "logits.copy_(linear(x, head)[batch.rows])",
            "logits.copy_(linear(x.bfloat16(), head.bfloat16())[batch.rows])",
        ),
        ("slow", "for layer in range(spec.layers):", "for layer in range(spec.layers - 1):"),
        ("slow", "q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)", "k = apply_rope(k, cos, sin)"),
        ("fast", "keys[segment.slot, :, :end]", "keys[segment.slot, :, :end].bfloat16().float()"),
        ("slow", "columns <= rows", "(columns <= rows) & (columns > rows - 24)"),
    ],
    ids=["zeros", "noise", "downcast head", "skipped layer", "no rope on queries", "cache in bf16", "short window"],
)
def test_work_not_done_is_rejected(engine: CpuEngine, tier: Tier, old: str, new: str) -> None:
    verdict, _ = ruled(engine, changed((old, new)), tier)
    assert (verdict.ruling, verdict.reason) == ("reject", "numerics"), verdict.detail


def test_a_crash_in_mid_session_is_a_failed_record_and_the_next_session_works(engine: CpuEngine) -> None:
    crash = 'if batch.segments[0].start > 30:\n            raise RuntimeError("enough")\n        '
    verdict, facts = ruled(engine, changed((STEP, crash + STEP)), "slow")
    assert isinstance(facts, Failed)
    assert (facts.arm, facts.stage) == ("candidate", "run")
    assert "enough" in facts.reason + facts.log
    assert verdict.reason == "failed"
    assert isinstance(ruled(engine, changed(more="\n# next\n"), "fast")[1], Measurement)
