"""The scripted engine obeys the ports: chunking does not matter, time passes as scripted, failures happen on cue."""

import numpy as np
import pytest

from reforward.domain.errors import CandidateFailed
from reforward.domain.ports import Engine, LmWorker, ModuleWorker
from reforward.domain.spec import Limits, Segment
from reforward.engine.scripted import Pace, Role, ScriptedEngine, scripted_candidate, tiny_subject

SUBJECT, SPEC, STOCK = tiny_subject()
LIMITS = Limits(slots=2, length=32, tokens=16, rows=8)


def rows(worker: LmWorker, count: int) -> np.ndarray:
    tensor = worker.rows(0, count)
    return np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)


def test_it_satisfies_the_ports() -> None:
    engine: Engine = ScriptedEngine(SUBJECT, SPEC, {})
    worker: LmWorker = engine.start_lm(engine.prepare(STOCK), depth=1, limits=LIMITS)
    module: ModuleWorker = ScriptedEngine(tiny_subject("module")[0], None, {}).start_module(engine.prepare(STOCK))
    assert worker.watermark == STOCK.id
    assert module.call(module.draw(3, "fast"))["output"].shape == (4, 64)


def test_prefill_in_chunks_equals_prefill_at_once_and_the_oracle_is_near() -> None:
    engine = ScriptedEngine(SUBJECT, SPEC, {})
    start = engine.prepare(STOCK)
    whole = engine.start_lm(start, depth=2, limits=LIMITS)
    parts = engine.start_lm(start, depth=2, limits=LIMITS)
    exact = engine.start_lm(start, depth=2, limits=LIMITS, oracle=True)
    for worker in (whole, exact):
        worker.step([5, 6, 7, 8], (Segment(slot=1, start=0, length=4),), [3], 0)
    parts.step([5, 6], (Segment(slot=1, start=0, length=2),), [], 0)
    token = parts.step([7, 8], (Segment(slot=1, start=2, length=2),), [1], 0)
    assert np.array_equal(rows(whole, 1), rows(parts, 1))
    assert token == [int(rows(parts, 1).argmax())]
    assert 0 < np.abs(rows(exact, 1) - rows(whole, 1)).max() < 1e-4


def test_run_equals_repeated_steps() -> None:
    engine = ScriptedEngine(SUBJECT, SPEC, {})
    worker = engine.start_lm(engine.prepare(STOCK), depth=1, limits=LIMITS)
    first = worker.step([1, 2], (Segment(slot=0, start=0, length=2),), [1], 0)
    ran = worker.run(first, [0], [2], 3, 0)
    worker.step([1, 2], (Segment(slot=0, start=0, length=2),), [1], 0)
    stepped, token = [], first
    for position in (2, 3, 4):
        token = worker.step(token, (Segment(slot=0, start=position, length=1),), [0], 0)
        stepped.append(token)
    assert ran == stepped


def test_time_passes_as_scripted() -> None:
    quiet = Pace(step_s=0.01, token_s=0.001, load_s=0.5, launch_noise=0, step_noise=0)
    engine = ScriptedEngine(SUBJECT, SPEC, {STOCK.id: Role(pace=quiet)})
    worker = engine.start_lm(engine.prepare(STOCK), depth=1, limits=LIMITS)
    worker.step([1, 2], (Segment(slot=0, start=0, length=2),), [1], 0)
    assert engine.clock() == pytest.approx(0.512e9, abs=2)


@pytest.mark.parametrize("stage", ["build", "load", "run"])
def test_failures_happen_at_their_stage(stage: str) -> None:
    bad = scripted_candidate("bad")
    engine = ScriptedEngine(SUBJECT, SPEC, {bad.id: Role(fails=(stage, 0))})

    def use() -> None:
        worker = engine.start_lm(engine.prepare(bad), depth=1, limits=LIMITS)
        worker.step([1], (Segment(slot=0, start=0, length=1),), [0], 0)

    with pytest.raises(CandidateFailed) as caught:
        use()
    assert caught.value.stage == stage
