"""Sessions against the scripted engine: order, pausing, failures, secrecy, what the judge is handed."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract, Numerics
from reforward.domain.errors import BadInput, EngineLost
from reforward.domain.measurement import Failed, Measurement, Output, Sample
from reforward.domain.subject import Tier
from reforward.domain.workload import Request, Workload
from reforward.engine.scripted import Pace, Role, ScriptedEngine, Twist, scripted_candidate, tiny_subject
from reforward.judge.standard import StandardJudge
from reforward.measure.arrays import outputs_hash
from reforward.measure.measurer import Facts, Measurer

FAST = scripted_candidate("fast")
QUICK = Pace(step_s=0.006)
SHAPES = ((20, 8), (9, 5), (31, 6), (12, 7), (25, 4))
WORKLOAD = Workload(
    name="test",
    source="test",
    requests=tuple(Request(arrival_s=0, prompt_tokens=p, output_tokens=o) for p, o in SHAPES),
    weights=(1.0,) * len(SHAPES),
    concurrency=2,
)


class Pairs:
    """Stops after so many pairs, and counts how often it was asked."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, 0

    def observe(self, samples: Sequence[Sample]) -> Literal["continue", "stop"]:
        self.asked += 1
        assert len(samples) == 4 * self.asked
        return "stop" if self.asked == self.count else "continue"


def letters(text: str) -> list[int]:
    return [byte % 64 for byte in text.encode()]


def lm(role: Role, *, stock: Role | None = None, numerics: Numerics = "reassociated", seed: int = 0, **more: object):
    subject, spec, stock_candidate = tiny_subject()
    engine = ScriptedEngine(subject, spec, {FAST.id: role}, stock=stock, seed=seed)
    nonces = random.Random(seed)
    made = Measurer(
        engine, stock_candidate, Contract(numerics=numerics), encode=letters, clock=engine.clock,
        draw=random.Random(seed), now=lambda: "2026-01-01T00:00:00+00:00",
        **{"nonce": lambda: f"{nonces.random()}", **more},
    )  # fmt: skip
    return engine, made, stock_candidate


def run(role: Role, tier: Tier = "slow", pairs: int = 2, **more: object) -> tuple[ScriptedEngine, Facts]:
    engine, measurer, stock = lm(role, **more)
    return engine, measurer.measure(FAST, stock, WORKLOAD, tier, Pairs(pairs))


def measurement(facts: Facts) -> Measurement:
    assert isinstance(facts[0], Measurement)
    return facts[0]


def test_passes_are_abba_and_baab_in_fresh_launches() -> None:
    engine, facts = run(Role(pace=QUICK), pairs=3)
    samples = measurement(facts).samples
    letters_ = ["".join("A" if s.arm == "candidate" else "B" for s in samples if s.launch == n) for n in range(3)]
    assert letters_ == ["BAAB", "ABBA", "BAAB"]
    assert [sample.order for sample in samples] == list(range(12))
    timed = [worker for worker in engine.started if worker.candidate == FAST]
    assert len(timed) == 3
    assert all(worker.closed for worker in timed)


def test_only_one_arm_runs_at_a_time_and_references_sleep() -> None:
    """`ScriptedWorker.work` asserts that it is not paused; here: that everybody else is."""
    subject, spec, stock = tiny_subject()
    engine = ScriptedEngine(subject, spec, {FAST.id: Role()})
    busy = engine.draw.random

    def awake() -> float:
        running = [worker for worker in engine.started if not worker.paused and not worker.closed]
        assert len(running) == 1, running
        return busy()

    engine.draw = Watching(engine.draw, awake)
    measurer = Measurer(engine, stock, Contract(numerics="reassociated"), encode=letters, clock=engine.clock)
    for tier in ("fast", "slow"):
        measurer.measure(FAST, stock, WORKLOAD, tier, Pairs(2))
    measurer.close()
    assert engine.draw.calls > 100
    assert all(worker.closed for worker in engine.started)


class Watching:
    """A generator that calls a check each time a worker spends time."""

    def __init__(self, inner: np.random.Generator, random: object) -> None:
        self.inner, self.check, self.calls = inner, random, 0

    def random(self) -> float:
        self.calls += 1
        return self.check()

    def standard_normal(self) -> float:
        return self.inner.standard_normal()


def test_the_clock_is_the_clients_and_times_are_right() -> None:
    still = Pace(step_s=0.01, token_s=0.0, launch_noise=0, step_noise=0)
    _, facts = run(Role(pace=still), stock=Role(pace=still), pairs=1)
    for sample in measurement(facts).samples:
        assert sample.seconds == pytest.approx(0.01 * round(sample.seconds / 0.01))
        assert len(sample.ttft_s) == len(SHAPES)
        assert sample.ttft_s[0] == pytest.approx(0.01)
        assert 0 < sample.decode_s <= sample.seconds
        assert sample.decode_tokens <= sum(output for _, output in SHAPES)


def test_harvesting_rows_takes_no_time_from_the_clock() -> None:
    """An outbox of two rows is emptied many times in a pass; the times stay the same."""
    still = Pace(step_s=0.01, token_s=0.0, launch_noise=0, step_noise=0)
    _, whole = run(Role(pace=still), stock=Role(pace=still), pairs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reforward.measure.lm.OUTBOX_BYTES", 4 * 64 * 2)
        _, parts = run(Role(pace=still), stock=Role(pace=still), pairs=1)
    assert [s.seconds for s in measurement(whole).samples] == [s.seconds for s in measurement(parts).samples]
    assert {o.name for o in whole[1]} == {o.name for o in parts[1]}


def test_texts_differ_between_passes_and_are_the_same_for_both_arms() -> None:
    seen: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    engine, measurer, stock = lm(Role())
    start = engine.start_lm

    def spying(prepared, **more):
        worker = start(prepared, **more)
        step = worker.step

        def noted(tokens, segments, rows, first):
            if any(segment.start == 0 for segment in segments):
                seen.setdefault((worker.candidate.id, id(worker)), []).append(tuple(tokens))
            return step(tokens, segments, rows, first)

        worker.step = noted
        return worker

    engine.start_lm = spying
    measurer.measure(FAST, stock, WORKLOAD, "slow", Pairs(2))
    first, second = (calls for (owner, _), calls in seen.items() if owner == FAST.id)
    assert len(set(first)) == len(first)
    assert not set(first) & set(second)
    theirs = [calls for (owner, _), calls in seen.items() if owner == stock.id]
    assert sum(calls == first for calls in theirs) == 1
    assert sum(calls == second for calls in theirs) == 1


def test_the_nonce_fixes_the_material_and_is_revealed() -> None:
    same = [run(Role(), nonce=lambda: "known")[1] for _ in range(2)]
    other = run(Role(), nonce=lambda: "other")[1]
    assert measurement(same[0]).nonce == "known"
    assert measurement(same[0]).outputs == measurement(same[1]).outputs == outputs_hash(same[0][1])
    assert measurement(other).outputs != measurement(same[0]).outputs


@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_honest_outputs_equal_the_stocks_and_lie_near_the_oracles(tier: Tier) -> None:
    _, (_, outputs) = run(Role(), tier)
    assert 2 <= sum(output.oracle is not None for output in outputs) < len(outputs)
    for output in outputs:
        assert output.candidate.shape == output.stock.shape == (len(output.tokens), 64)
        made, stock = array(output, "candidate"), array(output, "stock")
        assert np.array_equal(made, stock)
        assert list(made.argmax(axis=1)) == list(output.tokens)
        if output.oracle is not None:
            assert 0 < np.abs(array(output, "oracle") - stock).max() < 1e-3


def array(output: Output, which: str) -> np.ndarray:
    tensor = getattr(output, which)
    return np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)


def test_every_candidate_pass_is_checked_in_part() -> None:
    _, (_, outputs) = run(Role(), pairs=3)
    passes = {output.name.rpartition(", ")[0] for output in outputs}
    assert passes == {f"launch {launch}, text {text}" for launch in range(3) for text in range(2)}


@pytest.mark.parametrize("numerics", ["reassociated", "bit-exact"])
def test_runs_of_several_steps_give_the_rows_of_single_steps(numerics: Numerics) -> None:
    _, one = run(Role(), nonce=lambda: "n", numerics=numerics)
    _, many = run(Role(), nonce=lambda: "n", numerics=numerics, steps=4)
    assert [output.candidate for output in one[1]] == [output.candidate for output in many[1]]
    assert all(output.candidate == output.stock for output in many[1])


def test_bit_exact_outputs_come_from_the_same_plans() -> None:
    _, (_, outputs) = run(Role(pace=QUICK), numerics="bit-exact")
    assert all(output.candidate == output.stock for output in outputs)
    _, (_, halved) = run(Role(pace=QUICK, halves=True), numerics="bit-exact")
    assert any(output.candidate != output.stock for output in halved)


def test_a_row_that_disowns_its_token_is_kept_as_evidence() -> None:
    """One wrong row in a pass of thirty, outside what was drawn, still reaches the judge."""

    engine, measurer, stock = lm(Role())
    start = engine.start_lm

    def lying(prepared, **more):
        worker = start(prepared, **more)
        if worker.candidate == FAST:
            step = worker.step

            def changed(tokens, segments, rows, first):
                made = step(tokens, segments, rows, first)
                return [(made[0] + 1) % 64, *made[1:]] if worker.calls % 9 == 8 and made else made

            worker.step = changed
        return worker

    engine.start_lm = lying
    contract = Contract(numerics="reassociated")
    facts, outputs = measurer.measure(FAST, stock, WORKLOAD, "fast", Pairs(2))
    assert StandardJudge().rule(facts, outputs, contract).reason == "token-mismatch"


@pytest.mark.parametrize(("stage", "calls"), [("build", 0), ("load", 0), ("load", 1), ("run", 0), ("run", 25)])
def test_a_failing_candidate_becomes_a_failed_record(stage: str, calls: int) -> None:
    engine, (facts, outputs) = run(Role(fails=(stage, calls)))
    assert isinstance(facts, Failed)
    assert (facts.arm, facts.stage, facts.reason) == ("candidate", stage, "scripted failure")
    assert facts.log == "last line of its log"
    assert outputs == ()
    assert all(worker.closed for worker in engine.started)


def test_a_failing_incumbent_is_named_and_the_next_session_works() -> None:
    engine, measurer, stock = lm(Role())
    bad = scripted_candidate("bad incumbent")
    engine.roles = {**engine.roles, bad.id: Role(fails=("run", 30))}
    facts, _ = measurer.measure(FAST, bad, WORKLOAD, "slow", Pairs(2))
    assert isinstance(facts, Failed)
    assert (facts.arm, facts.candidate) == ("incumbent", FAST.id)
    facts, outputs = measurer.measure(FAST, stock, WORKLOAD, "slow", Pairs(2))
    assert isinstance(facts, Measurement)
    assert outputs


def on_device(role: Role) -> tuple[ScriptedEngine, Facts]:
    """The same session, on an engine that says that it runs on a device."""
    engine, measurer, stock = lm(role)
    engine.target = replace(engine.target, launch=replace(engine.target.launch, device="cuda:0"))
    return engine, measurer.measure(FAST, stock, WORKLOAD, "fast", Pairs(2))


def test_on_a_device_both_workers_of_a_pair_start_together_and_passes_are_longer() -> None:
    engine, facts = on_device(Role())
    samples = measurement(facts).samples
    assert ["".join(s.arm[0] for s in samples if s.launch == n) for n in range(2)] == ["icci", "ciic"]
    assert min(s.decode_tokens for s in samples) > 2 * max(
        s.decode_tokens for s in measurement(run(Role(), "fast")[1]).samples
    )
    assert all(worker.closed for worker in engine.started if worker.candidate == FAST)


def test_on_a_device_a_candidate_that_does_not_start_is_named_and_the_other_ended() -> None:
    engine, facts = on_device(Role(fails=("load", 1)))
    assert isinstance(facts[0], Failed)
    assert (facts[0].arm, facts[0].stage) == ("candidate", "load")
    assert all(worker.closed for worker in engine.started)


def test_reference_workers_that_went_with_their_engine_are_started_again() -> None:
    engine, measurer, stock = lm(Role())
    assert isinstance(measurer.measure(FAST, stock, WORKLOAD, "slow", Pairs(2))[0], Measurement)
    held = [worker for worker in engine.started if not worker.closed]
    for worker in held:
        worker.role = replace(worker.role, fails=("run", 0))
    assert isinstance(measurer.measure(FAST, stock, WORKLOAD, "slow", Pairs(2))[0], Measurement)
    assert held
    assert all(worker.closed for worker in held)


def test_a_failing_reference_is_a_lost_engine() -> None:
    engine, measurer, stock = lm(Role())
    good = scripted_candidate("good incumbent")
    engine.roles = {**engine.roles, stock.id: Role(fails=("run", 0)), good.id: Role()}
    with pytest.raises(EngineLost, match="as a reference"):
        measurer.measure(FAST, good, WORKLOAD, "slow", Pairs(2))
    engine.roles = {good.id: Role()}
    assert isinstance(measurer.measure(FAST, good, WORKLOAD, "slow", Pairs(2))[0], Measurement)


def test_a_request_workload_without_a_tokenizer_is_refused() -> None:
    subject, spec, stock = tiny_subject()
    measurer = Measurer(ScriptedEngine(subject, spec, {}), stock, Contract(numerics="reassociated"))
    with pytest.raises(BadInput, match="tokenizer"):
        measurer.measure(FAST, stock, WORKLOAD, "fast", Pairs(1))


def test_the_worst_memory_and_a_foreign_watermark_are_reported() -> None:
    _, facts = run(Role(private=777, watermark="candidate:b2:else"))
    assert measurement(facts).candidate.memory.private == 777
    assert measurement(facts).candidate.watermark == "candidate:b2:else"
    assert measurement(facts).incumbent.watermark == measurement(facts).incumbent.candidate


TWISTS: dict[str, Twist] = {
    "zeros": lambda rows, before, draw: np.zeros_like(rows),
    "noise": lambda rows, before, draw: (draw.standard_normal(rows.shape) * rows.std()).astype(np.float32),
    "stale": lambda rows, before, draw: rows if before is None or before.shape != rows.shape else before,
    "shifted": lambda rows, before, draw: np.roll(rows, 1, axis=1),
    "half precision": lambda rows, before, draw: rows.astype(np.float16).astype(np.float32),
    "rarely wrong": lambda rows, before, draw: np.roll(rows, 1, axis=1) if draw.random() < 0.2 else rows,
}


@pytest.mark.parametrize("name", TWISTS)
@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_cheats_fall_in_whole_sessions(name: str, tier: Tier) -> None:
    contract = Contract(numerics="reassociated")
    judge = StandardJudge()
    _, measurer, stock = lm(Role(pace=Pace(step_s=0.001), twist=TWISTS[name]))
    facts, outputs = measurer.measure(FAST, stock, WORKLOAD, tier, judge.stopping(contract, tier))
    assert judge.rule(facts, outputs, contract).reason == "numerics"


@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_an_honest_rewrite_is_accepted_in_a_whole_session(tier: Tier) -> None:
    contract = Contract(numerics="reassociated")
    judge = StandardJudge()
    _, measurer, stock = lm(Role(pace=QUICK, halves=True))
    facts, outputs = measurer.measure(FAST, stock, WORKLOAD, tier, judge.stopping(contract, tier))
    verdict = judge.rule(facts, outputs, contract)
    assert verdict.ruling == "accept", verdict.detail
    assert verdict.gain is not None
    assert verdict.gain.low > 0.04


def test_identical_code_is_not_accepted_in_many_whole_sessions() -> None:
    """A/A: the same behaviour under another name, on a noisy machine, with disturbed calls."""
    noisy = Pace(launch_noise=0.03, step_noise=0.05, spikes=0.002)
    _, measurer, stock = lm(Role(pace=noisy), stock=Role(pace=noisy))
    contract, judge = Contract(numerics="reassociated"), StandardJudge()
    reasons = []
    for _ in range(60):
        facts, outputs = measurer.measure(FAST, stock, WORKLOAD, "fast", judge.stopping(contract, "fast"))
        reasons.append(judge.rule(facts, outputs, contract).reason)
    assert reasons.count("promising") <= 2
    assert set(reasons) <= {"promising", "no-gain", "slower", "undecided"}


def module(role: Role) -> tuple[ScriptedEngine, Measurer, Candidate, Candidate, Workload]:
    subject, _, stock = tiny_subject("module")
    fast = scripted_candidate("fast", "module")
    engine = ScriptedEngine(subject, None, {fast.id: role})
    workload = Workload(name="m", source="test", inputs=5)
    return engine, Measurer(engine, stock, Contract(numerics="bit-exact"), clock=engine.clock), fast, stock, workload


def test_a_module_session_compares_every_timed_call() -> None:
    _, measurer, fast, stock, workload = module(Role(pace=QUICK))
    judge, contract = StandardJudge(), Contract(numerics="bit-exact")
    facts, outputs = measurer.measure(fast, stock, workload, "slow", judge.stopping(contract, "slow"))
    assert len(outputs) == 5 * sum(sample.arm == "candidate" for sample in measurement((facts, outputs)).samples)
    assert len({output.candidate.data for output in outputs}) == len(outputs)
    assert judge.rule(facts, outputs, contract).reason == "faster"


@pytest.mark.parametrize("role", [Role(halves=True), Role(twist=TWISTS["zeros"]), Role(twist=TWISTS["stale"])])
def test_a_module_that_is_not_bit_exact_is_rejected(role: Role) -> None:
    _, measurer, fast, stock, workload = module(role)
    judge, contract = StandardJudge(), Contract(numerics="bit-exact")
    facts, outputs = measurer.measure(fast, stock, workload, "fast", Pairs(2))
    assert judge.rule(facts, outputs, contract).reason == "numerics"
