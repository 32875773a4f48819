"""Which rows of a language model's passes are checked, and when they are taken."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from reforward.domain.contract import Contract
from reforward.domain.measurement import Tensor
from reforward.domain.workload import Request, Workload
from reforward.engine.scripted import ScriptedEngine, tiny_subject
from reforward.measure import lm
from reforward.measure.lm import Collector, LmTrial
from reforward.measure.measurer import ARMS
from reforward.measure.references import References
from reforward.measure.replay import Row

WORKLOAD = Workload(
    name="test", source="test", requests=(Request(arrival_s=0, prompt_tokens=9, output_tokens=12),) * 6,
    weights=(1.0,) * 6, concurrency=2,
)  # fmt: skip
ROWS_THAT_FIT = 96
MIN_PAIRS = Contract(numerics="reassociated").min_pairs


class Outbox:
    """Rows that the worker writes whenever it likes."""

    def __init__(self, rows: np.ndarray) -> None:
        self.values = rows

    def rows(self, first: int, count: int) -> Tensor:
        part = self.values[first : first + count]
        return Tensor(dtype="float32", shape=part.shape, data=part.tobytes())


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> LmTrial:
    return opened(monkeypatch, WORKLOAD, rows=ROWS_THAT_FIT)


def opened(monkeypatch: pytest.MonkeyPatch, workload: Workload, *, rows: int) -> LmTrial:
    """A trial that keeps at most so many rows."""
    subject, spec, stock = tiny_subject()
    monkeypatch.setattr(lm, "KEEP_BYTES", rows * 3 * 4 * spec.vocab)
    engine = ScriptedEngine(subject, spec, {})
    return LmTrial(
        engine, References(engine, stock), Contract(numerics="reassociated"), workload, "slow", "nonce",
        encode=lambda text: [byte % 64 for byte in text.encode()], clock=engine.clock, steps=1, draw=random.Random(1),
    )  # fmt: skip


def play(trial: LmTrial, launches: Sequence[int]) -> None:
    prepared = trial.engine.prepare(tiny_subject()[2])
    for launch in launches:
        worker = trial.start(prepared)
        for text in range(2):
            worker.resume()
            trial.timed(worker, "candidate", launch, text)
        worker.close()


def test_a_session_that_may_end_early_has_checked_as_much_as_a_long_one(trial: LmTrial) -> None:
    play(trial, range(4))
    early = [len(kept.rows) for kept in trial.kept]
    assert sum(early) == ROWS_THAT_FIT
    assert len(set(early)) == 1
    play(trial, range(4, 9))
    later = [len(kept.rows) for kept in trial.kept]
    assert ROWS_THAT_FIT // 2 < sum(later) <= ROWS_THAT_FIT
    assert lm.LEAST_ROWS == max(later) <= min(later) + 1, "each row has a lot of its own, so one may be missing"


def test_thinning_keeps_what_is_wrong_and_first_rows(trial: LmTrial) -> None:
    play(trial, [0])
    kept = trial.kept[0]
    key = max(kept.rows)
    trial.rows_per_pass = 4
    thinner = trial._thinned(lm.replace(kept, wrong=frozenset({key})))
    assert key in thinner.rows
    assert {key for key in kept.rows if key[1] == 0} <= set(thinner.rows)
    assert len(thinner.rows) == 5


def test_a_long_session_has_checked_later_tokens_of_its_early_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    many = replace(WORKLOAD, requests=WORKLOAD.requests * 4, weights=(1.0,) * 24)
    trial = opened(monkeypatch, many, rows=16 * 2 * MIN_PAIRS)
    play(trial, range(9))
    assert all(any(output > 0 for _, output in kept.rows) for kept in trial.kept)


def test_both_arms_are_read_alike(trial: LmTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    read = dict[str, list[int]]()
    for arm in ARMS:
        worker = trial.start(trial.engine.prepare(tiny_subject()[2]))
        seen, rows = read.setdefault(arm, []), worker.rows
        monkeypatch.setattr(
            worker, "rows", lambda first, count, seen=seen, rows=rows: seen.append(count) or rows(first, count)
        )
        monkeypatch.setattr(trial, "_drawn", lambda *_: frozenset[tuple[int, int]]())
        worker.resume()
        trial.timed(worker, arm, 0, 0)
    assert read["candidate"] == read["incumbent"] != []


def test_what_is_read_does_not_tell_which_requests_are_checked(trial: LmTrial) -> None:
    scripts = trial._scripts("any")
    read = [0] * len(scripts)
    for _ in range(200):
        checked = trial._checked(scripts)
        drawn = trial._drawn(scripts, len(checked))
        assert {(request, 0) for request in range(len(scripts))} <= drawn
        for request, _ in drawn:
            read[request] += 1
    assert max(read) < 1.1 * min(read)


def test_rows_of_requests_that_are_not_checked_are_forgotten_unless_wrong() -> None:
    outbox = Outbox(np.eye(3, 4, dtype=np.float32))
    rows = [Row(request=request, output=0, token=min(request, 1), place=request) for request in range(3)]
    collector = Collector(drawn=frozenset((row.request, 0) for row in rows), worker=outbox)  # type: ignore[arg-type]
    collector.arrived(rows)
    collector.harvest(rows)
    collector.forget({0})
    assert collector.rows.keys() == {(0, 0), (2, 0)}
    assert collector.wrong == {(2, 0)}


def test_a_row_counts_as_it_was_when_its_token_arrived() -> None:
    outbox = Outbox(np.zeros((2, 4), np.float32))
    collector = Collector(drawn=frozenset({(0, 0)}), worker=outbox)  # type: ignore[arg-type]
    rows = [Row(request=0, output=0, token=2, place=0), Row(request=0, output=1, token=2, place=1)]
    collector.arrived(rows[:1])
    outbox.values[:, 2] = 1
    collector.arrived(rows[1:])
    collector.harvest(rows)
    assert not collector.wrong
    assert {key: row.tolist() for key, row in collector.rows.items()} == {(0, 0): [0, 0, 0, 0]}
