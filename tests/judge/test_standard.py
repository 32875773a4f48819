"""The judge on outputs of a small real computation: honest rewrites pass, each way of not doing the work fails."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from reforward.domain.contract import Contract, Numerics
from reforward.domain.measurement import Arm, Failed, Measurement, Memory, Output, Sample, Tensor
from reforward.domain.subject import Tier
from reforward.domain.verdict import Verdict
from reforward.judge.standard import StandardJudge

Rows = NDArray[np.float32]
DRAW = np.random.default_rng(0)
WIDTH, VOCAB, COUNT = 96, 211, 40
HEAD = (DRAW.standard_normal((WIDTH, VOCAB)) / 4).astype(np.float32)
MIX = (DRAW.standard_normal((WIDTH, WIDTH)) / 10).astype(np.float32)
INPUTS = DRAW.standard_normal((COUNT, WIDTH)).astype(np.float32)


def bf16(values: Rows) -> Rows:
    return ((values.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def forward(inputs: NDArray[np.floating], kind: type = np.float32) -> Rows:
    hidden = np.tanh(inputs.astype(kind) @ MIX.astype(kind))
    return (hidden @ HEAD.astype(kind)).astype(np.float32)


def halves(inputs: Rows) -> Rows:
    """Another summation order, one row at a time."""
    hidden = np.tanh(inputs[:, ::2] @ MIX[::2] + inputs[:, 1::2] @ MIX[1::2])
    return np.stack([row[: WIDTH // 2] @ HEAD[: WIDTH // 2] + row[WIDTH // 2 :] @ HEAD[WIDTH // 2 :] for row in hidden])


def downcast(inputs: Rows) -> Rows:
    return bf16(np.tanh(bf16(inputs) @ bf16(MIX))) @ bf16(HEAD)


def wrong_part(inputs: Rows) -> Rows:
    """One head's worth of the hidden state of one input is lost."""
    hidden = np.tanh(inputs @ MIX)
    hidden[7, :12] = 0
    return hidden @ HEAD


STOCK, ORACLE = forward(INPUTS), forward(INPUTS, np.float64)

CHEATS: dict[str, Callable[[], Rows]] = {
    "zeros": lambda: np.zeros_like(STOCK),
    "constant": lambda: np.repeat(STOCK[:1], COUNT, axis=0),
    "noise": lambda: np.random.default_rng(1).standard_normal(STOCK.shape).astype(np.float32) * STOCK.std(),
    "shuffled rows": lambda: np.random.default_rng(2).permutation(STOCK),
    "shuffled elements": lambda: np.roll(STOCK, 1, axis=1),
    "previous row": lambda: np.roll(STOCK, 1, axis=0),
    "downcast inside": lambda: downcast(INPUTS),
    "downcast outputs": lambda: bf16(STOCK),
    "half precision": lambda: STOCK.astype(np.float16).astype(np.float32),
    "one wrong head in one row": lambda: wrong_part(INPUTS),
    "scaled a little": lambda: STOCK * np.float32(1 + 3e-6),
    "last column forgotten": lambda: np.where(np.arange(VOCAB) == VOCAB - 1, 0, STOCK).astype(np.float32),
    "last row forgotten": lambda: np.where(np.arange(COUNT)[:, None] == COUNT - 1, 0, STOCK).astype(np.float32),
}


def tensor(rows: NDArray[np.generic]) -> Tensor:
    return Tensor(dtype=str(rows.dtype), shape=rows.shape, data=np.ascontiguousarray(rows).tobytes())


def lm_outputs(made: Rows, *, parts: int = 4, oracles: int = 2) -> tuple[Output, ...]:
    """As a session hands them over: by request, the oracle for some of them."""
    size = COUNT // parts
    return tuple(
        Output(
            name=f"launch 0, text {part}, request 0",
            candidate=tensor(made[part * size : (part + 1) * size]),
            stock=tensor(STOCK[part * size : (part + 1) * size]),
            oracle=tensor(ORACLE[part * size : (part + 1) * size]) if part < oracles else None,
            tokens=tuple(int(token) for token in made[part * size : (part + 1) * size].argmax(axis=1)),
            positions=tuple(range(part * size, (part + 1) * size)),
        )
        for part in range(parts)
    )


def arm(candidate: str, *, private: int = 0, watermark: str = "") -> Arm:
    memory = Memory(weights=1000, packed=0, state=0, private=private)
    return Arm(candidate=candidate, watermark=watermark or candidate, load_s=0, pack_s=0, build_s=0, memory=memory)


def measured(
    gain: float = 0.3, *, tier: Tier = "slow", ours: Arm | None = None, theirs: Arm | None = None, decode_s: float = 0.5
) -> Measurement:
    draw, samples = np.random.default_rng(3), list[Sample]()
    for launch in range(4):
        for name in ("incumbent", "candidate", "candidate", "incumbent"):
            seconds = float(np.exp(0.01 * draw.standard_normal())) / (1 + gain if name == "candidate" else 1)
            samples.append(
                Sample(
                    arm=name, launch=launch, order=len(samples), seconds=seconds, decode_s=decode_s, decode_tokens=10
                )
            )
    return Measurement(
        tier=tier, target="t", workload="w", nonce="n", candidate=ours or arm("candidate:b2:c"),
        incumbent=theirs or arm("candidate:b2:i"), samples=tuple(samples), outputs="", started_at="",
    )  # fmt: skip


def contract(numerics: Numerics = "reassociated") -> Contract:
    return Contract(numerics=numerics)


def ruled(
    outputs: tuple[Output, ...], measurement: Measurement | None = None, numerics: Numerics = "reassociated"
) -> Verdict:
    return StandardJudge().rule(measurement or measured(), outputs, contract(numerics))


def test_the_same_bits_are_accepted_under_both_classes() -> None:
    for numerics in ("reassociated", "bit-exact"):
        verdict = ruled(lm_outputs(STOCK), numerics=numerics)
        assert (verdict.ruling, verdict.reason) == ("accept", "faster")
        assert verdict.gain is not None
        assert 0.2 < verdict.gain.low < verdict.gain.mid < verdict.gain.high < 0.4


def test_another_summation_order_is_reassociated_and_not_bit_exact() -> None:
    made = halves(INPUTS)
    assert not np.array_equal(made, STOCK)
    assert ruled(lm_outputs(made)).reason == "faster"
    verdict = ruled(lm_outputs(made), numerics="bit-exact")
    assert (verdict.ruling, verdict.reason) == ("reject", "numerics")


@pytest.mark.parametrize("name", CHEATS)
@pytest.mark.parametrize("numerics", ["reassociated", "bit-exact"])
def test_work_not_done_is_rejected(name: str, numerics: Numerics) -> None:
    verdict = ruled(lm_outputs(CHEATS[name]()), numerics=numerics)
    assert (verdict.ruling, verdict.reason) == ("reject", "numerics"), verdict.detail


@pytest.mark.parametrize("name", sorted(CHEATS.keys() - {"one wrong head in one row"}))
def test_rows_that_only_the_stock_vouches_for_are_checked_too(name: str) -> None:
    """The cheat is confined to the outputs that have no oracle."""
    made = np.concatenate([STOCK[: COUNT // 2], CHEATS[name]()[COUNT // 2 :]])
    assert ruled(lm_outputs(made)).reason == "numerics"


def test_an_lm_in_bf16_is_judged_by_bf16_noise() -> None:
    """The yardstick is the stock at its own precision: what fp32 forbids, a bf16 stock allows."""
    stock = downcast(INPUTS)
    output = Output(
        name="launch 0, text 0, request 0", candidate=tensor(bf16(stock)), stock=tensor(stock), oracle=tensor(ORACLE),
        tokens=tuple(int(token) for token in bf16(stock).argmax(axis=1)),
    )  # fmt: skip
    assert ruled((output,)).reason == "faster"


def test_rows_that_are_better_than_the_stocks_pay_for_no_others() -> None:
    stock = downcast(INPUTS)
    careless = ORACLE + 6 * (stock - ORACLE)
    made = np.where(np.arange(COUNT)[:, None] % 2, careless, ORACLE)
    output = Output(
        name="launch 0, text 0, request 0", candidate=tensor(made), stock=tensor(stock), oracle=tensor(ORACLE),
        tokens=tuple(int(token) for token in made.argmax(axis=1)),
    )  # fmt: skip
    verdict = ruled((output,))
    assert verdict.reason == "numerics"
    assert "typical error" in verdict.detail


@pytest.mark.parametrize(
    ("where", "check"),
    [
        (np.arange(VOCAB)[None, :] < VOCAB // 16, "errors gathered in a stretch of the row"),
        (np.arange(COUNT)[:, None] >= COUNT - 10, "errors gathered in positions"),
        (np.arange(VOCAB)[None, :] % 12 == 0, "errors gathered in a part of the vocabulary"),
        (np.arange(COUNT)[:, None] % 4 == 0, "errors gathered in some rows"),
    ],
)
def test_errors_that_an_average_would_hide_are_seen_where_they_gather(where: NDArray[np.bool_], check: str) -> None:
    """Four times the stock's error in a stretch of the vocabulary or scattered over it, at the last positions or every fourth."""
    made = np.where(where, ORACLE + 4 * (STOCK - ORACLE), STOCK).astype(np.float32)
    verdict = ruled(lm_outputs(made, oracles=4))
    assert verdict.reason == "numerics"
    assert check in [finding.check for finding in verdict.findings if not finding.passed]
    assert all("gathered" in finding.check for finding in verdict.findings if not finding.passed)


@pytest.mark.parametrize("gain", [0.3, -0.3])
def test_times_of_a_crowded_session_say_nothing(gain: float) -> None:
    quiet = measured(gain)
    crowded = replace(quiet, samples=tuple(replace(sample, crowded=0.4) for sample in quiet.samples))
    verdict = ruled(lm_outputs(STOCK), crowded)
    assert (verdict.ruling, verdict.reason) == ("unsure", "disturbed")
    assert "40%" in verdict.detail
    one = (replace(quiet.samples[0], crowded=0.4), *quiet.samples[1:])
    assert ruled(lm_outputs(STOCK), replace(quiet, samples=one)).reason in ("faster", "slower")
    assert ruled(lm_outputs(np.zeros_like(STOCK)), crowded).reason == "numerics"


def test_non_finite_elements_must_be_the_stocks() -> None:
    made = STOCK.copy()
    made[3, 5] = np.nan
    assert ruled(lm_outputs(made)).reason == "non-finite"
    made[3, 5] = -np.inf
    assert ruled(lm_outputs(made)).reason == "non-finite"


def test_infinities_that_the_stock_has_are_compared_by_sign() -> None:
    def outputs(sign: float) -> tuple[Output, ...]:
        masked, made = STOCK.copy(), STOCK.copy()
        masked[:, 0], made[:, 0] = -np.inf, sign * np.inf
        return tuple(
            Output(name=f"input {row}, output", candidate=tensor(made[row]), stock=tensor(masked[row]))
            for row in range(4)
        )

    assert ruled(outputs(-1), numerics="bit-exact").reason == "faster"
    assert ruled(outputs(+1), numerics="bit-exact").reason == "non-finite"


def test_a_token_must_be_the_first_maximum_of_its_row() -> None:
    outputs = lm_outputs(STOCK)
    wrong = (outputs[0].tokens[0] + 1, *outputs[0].tokens[1:])
    changed = Output(name="x", candidate=outputs[0].candidate, stock=outputs[0].stock, tokens=wrong)
    assert ruled((changed, *outputs[1:])).reason == "token-mismatch"


@pytest.mark.parametrize(
    "other",
    [
        Tensor(dtype="float32", shape=(COUNT, VOCAB - 1), data=b"\0" * 4 * COUNT * (VOCAB - 1)),
        Tensor(dtype="float64", shape=(COUNT, VOCAB), data=b"\0" * 8 * COUNT * VOCAB),
        Tensor(dtype="float32", shape=(COUNT, VOCAB), data=b"\0" * 4),
        Tensor(dtype="missing", shape=(0,), data=b""),
    ],
)
def test_outputs_of_another_shape_or_type_are_rejected_before_any_number(other: Tensor) -> None:
    verdict = ruled((Output(name="input 0, output", candidate=other, stock=tensor(STOCK)),))
    assert (verdict.ruling, verdict.reason) == ("reject", "shape")


def test_whole_number_outputs_must_be_equal_under_any_contract() -> None:
    answer, other = np.arange(6), np.arange(6)
    other[2] = 7
    floats = [Output(name=f"input {i}, b", candidate=tensor(STOCK[i]), stock=tensor(STOCK[i])) for i in range(4)]
    good = Output(name="input 0, a", candidate=tensor(answer), stock=tensor(answer))
    bad = Output(name="input 0, a", candidate=tensor(other), stock=tensor(answer))
    assert ruled((good, *floats)).reason == "faster"
    assert ruled((bad, *floats)).reason == "numerics"


def module_outputs(rows: Rows, made: Rows) -> tuple[Output, ...]:
    return tuple(
        Output(name=f"launch 0, text 0, input {i}, output", candidate=tensor(made[i]), stock=tensor(rows[i]))
        for i in range(len(rows))
    )


@pytest.mark.parametrize("numerics", ["reassociated", "bit-exact"])
def test_data_that_a_null_candidate_would_pass_is_void(numerics: Numerics) -> None:
    constant = np.ones((4, 8), np.float32)
    one = STOCK[:1]
    nothing = np.zeros((4, 8), np.float32)
    for rows in (constant, one, nothing):
        verdict = ruled(module_outputs(rows, rows), numerics=numerics)
        assert (verdict.ruling, verdict.reason) == ("unsure", "void"), verdict.detail
    assert ruled((), numerics=numerics).reason == "void"
    assert ruled(module_outputs(STOCK[:4], STOCK[:4]), numerics=numerics).reason == "faster"


def test_a_constant_output_beside_a_varying_one_is_not_void() -> None:
    constant = np.ones((4, 8), np.float32)
    fixed = [Output(name=f"input {i}, a", candidate=tensor(constant[i]), stock=tensor(constant[i])) for i in range(4)]
    moving = [Output(name=f"input {i}, b", candidate=tensor(STOCK[i]), stock=tensor(STOCK[i])) for i in range(4)]
    assert ruled((*fixed, *moving), numerics="bit-exact").reason == "faster"


def test_a_request_whose_rows_are_all_alike_beside_others_is_not_void() -> None:
    """A prompt that ends in a row of dashes gave eight equal rows, and they came first."""
    alike = np.repeat(STOCK[:1], 8, axis=0)
    requests = [
        Output(name=f"request {i}", candidate=tensor(rows), stock=tensor(rows), tokens=tuple(rows.argmax(axis=1)))
        for i, rows in enumerate((alike, STOCK[:8]))
    ]
    assert ruled(tuple(requests), numerics="bit-exact").reason == "faster"
    assert ruled((requests[0],), numerics="bit-exact").reason == "void"


def test_outputs_whose_width_changes_from_call_to_call_are_judged() -> None:
    rows = [STOCK[i, : 8 + 3 * i] for i in range(4)]
    outputs = [Output(name=f"input {i}, a", candidate=tensor(row), stock=tensor(row)) for i, row in enumerate(rows)]
    assert ruled(tuple(outputs), numerics="bit-exact").reason == "faster"
    wrong = [Output(name=f"input {i}, a", candidate=tensor(0 * row), stock=tensor(row)) for i, row in enumerate(rows)]
    assert ruled(tuple(wrong), numerics="bit-exact").reason == "numerics"


@pytest.mark.parametrize("numerics", ["reassociated", "bit-exact"])
def test_an_output_without_elements_is_compared_by_its_shape(numerics: Numerics) -> None:
    rows = [STOCK[i, :width] for i, width in enumerate((0, 8, 5, 0, 7))]
    outputs = tuple(Output(name=f"input {i}, a", candidate=tensor(r), stock=tensor(r)) for i, r in enumerate(rows))
    assert ruled(outputs, numerics=numerics).reason == "faster"
    wrong = Output(name="input 0, a", candidate=tensor(STOCK[0, :1]), stock=tensor(rows[0]))
    assert ruled((wrong, *outputs[1:]), numerics=numerics).reason == "shape"
    assert ruled((outputs[0], outputs[3]), numerics=numerics).reason == "void"


def test_checks_of_tokens_and_decoding_are_listed_where_they_apply() -> None:
    lm = {finding.check for finding in ruled(lm_outputs(STOCK)).findings}
    assert {"token is first maximum of its row", "seconds per decoded token"} <= lm
    passes = [replace(sample, decode_s=0.0, decode_tokens=0) for sample in measured().samples]
    module = ruled(module_outputs(STOCK[:4], STOCK[:4]), replace(measured(), samples=tuple(passes)))
    checks = {finding.check: finding.value for finding in module.findings}
    assert not {"token is first maximum of its row", "seconds per decoded token"} & checks.keys()
    assert 0.5 < checks["seconds a pass"] < 1.0


def test_a_module_in_bfloat16_is_read_as_such() -> None:
    rows = bf16(STOCK[:4]).view(np.uint32) >> 16
    narrow = rows.astype(np.uint16)
    outputs = tuple(
        Output(
            name=f"input {i}, output",
            candidate=Tensor(dtype="bfloat16", shape=(VOCAB,), data=narrow[i].tobytes()),
            stock=Tensor(dtype="bfloat16", shape=(VOCAB,), data=narrow[i].tobytes()),
        )
        for i in range(4)
    )
    assert ruled(outputs, numerics="bit-exact").reason == "faster"


def test_the_same_source_on_both_arms_is_identical() -> None:
    verdict = ruled(lm_outputs(STOCK), measured(theirs=arm("candidate:b2:c")))
    assert (verdict.ruling, verdict.reason) == ("reject", "identical")


def test_code_that_did_not_run_is_not_engaged() -> None:
    ours = arm("candidate:b2:c", watermark="candidate:b2:other")
    assert ruled(lm_outputs(STOCK), measured(ours=ours)).reason == "engagement"
    theirs = arm("candidate:b2:i", watermark="candidate:b2:other")
    assert (ruled(lm_outputs(STOCK), measured(theirs=theirs))).ruling == "unsure"


def test_memory_beyond_the_ceiling_is_rejected() -> None:
    slack = contract().memory_slack
    for private, reason in ((slack + 1240, "faster"), (slack + 1260, "memory")):
        verdict = ruled(lm_outputs(STOCK), measured(ours=arm("candidate:b2:c", private=private)))
        assert verdict.reason == reason


def test_impossible_times_are_rejected() -> None:
    judge = StandardJudge(floors={"slow": 0.01})
    outputs = lm_outputs(STOCK)
    assert judge.rule(measured(decode_s=0.1), outputs, contract()).reason == "faster"
    assert judge.rule(measured(decode_s=0.08), outputs, contract()).reason == "impossible"
    assert judge.rule(measured(decode_s=0.0), outputs, contract()).reason == "impossible"


def test_a_failed_candidate_is_rejected_and_a_failed_incumbent_leaves_it_open() -> None:
    def failed(arm_name: str) -> Failed:
        return Failed(
            tier="fast", target="t", workload="w", candidate="candidate:b2:c", arm=arm_name, stage="run",  # type: ignore[arg-type]
            reason="killed by signal 11", log="", started_at="",
        )  # fmt: skip

    ours = StandardJudge().rule(failed("candidate"), (), contract())
    theirs = StandardJudge().rule(failed("incumbent"), (), contract())
    assert (ours.ruling, ours.reason, theirs.ruling, theirs.reason) == ("reject", "failed", "unsure", "failed")
    assert "signal 11" in ours.detail


@pytest.mark.parametrize(
    ("gain", "tier", "ruling", "reason"),
    [
        (0.3, "fast", "accept", "promising"),
        (0.3, "slow", "accept", "faster"),
        (-0.2, "fast", "reject", "slower"),
        (-0.2, "slow", "reject", "slower"),
        (0.0, "fast", "reject", "no-gain"),
        (0.011, "slow", "unsure", "undecided"),
    ],
)
def test_rulings_on_gain(gain: float, tier: Tier, ruling: str, reason: str) -> None:
    verdict = ruled(lm_outputs(STOCK), measured(gain, tier=tier))
    assert (verdict.ruling, verdict.reason) == (ruling, reason), verdict.detail


def test_equal_arguments_give_equal_verdicts() -> None:
    outputs = lm_outputs(halves(INPUTS))
    assert ruled(outputs).id == ruled(outputs).id


def test_later_confirmations_need_more_evidence() -> None:
    first = StandardJudge().rule(measured(), lm_outputs(STOCK), contract())
    tenth = StandardJudge(confirmations=9).rule(measured(), lm_outputs(STOCK), contract())
    assert first.gain is not None
    assert tenth.gain is not None
    assert tenth.gain.low < first.gain.low < first.gain.mid
