"""A slot's state as bytes: another worker goes on with it, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.test_lifecycle import PROMPT, array
from engine.tiny import LIMITS, SPEC, stock, variant
from reforward.domain.spec import Segment
from reforward.engine.cpu import CpuEngine
from reforward.runtime.forward import StateTensor
from reforward.runtime.slots import layout, restore, save

OTHER = """    @staticmethod
    def state(spec, limits, dtype):
        from dataclasses import replace
        return tuple(replace(one, layout="another") for one in twin.Forward.state(spec, limits, dtype))
"""


@pytest.mark.parametrize("rows", [1, 16])
def test_another_worker_goes_on_where_the_first_was(engine: CpuEngine, rows: int) -> None:
    """Through an outbox larger and smaller than a slot."""
    limits = replace(LIMITS, rows=rows, length=64)
    prepared = engine.prepare(stock())
    first, second = (engine.start_lm(prepared, depth=SPEC.layers, limits=limits) for _ in range(2))
    try:
        assert first.layout == second.layout != ""
        begun = first.step(PROMPT, [Segment(slot=1, start=0, length=4)], [3], 0)
        second.step([9, 9, 9], [Segment(slot=0, start=0, length=3)], [2], 0)
        held = first.save(1)
        assert (len(held) > first.outbox_bytes) == (rows == 1)
        second.restore(0, held)
        after = [worker.step(begun, [Segment(slot=slot, start=4, length=1)], [0], 0)
                 for worker, slot in ((first, 1), (second, 0))]  # fmt: skip
        assert after[0] == after[1]
        assert np.array_equal(array(first.rows(0, 1)), array(second.rows(0, 1)))
    finally:
        first.close()
        second.close()


def test_forwards_that_keep_other_state_have_another_layout(engine: CpuEngine) -> None:
    other = variant(OTHER)
    workers = [engine.start_lm(engine.prepare(one), depth=SPEC.layers, limits=LIMITS) for one in (stock(), other)]
    try:
        assert workers[0].layout != workers[1].layout
    finally:
        for worker in workers:
            worker.close()


def test_pieces_of_any_size() -> None:
    state = {"a": torch.arange(12.0).view(2, 2, 3), "b": torch.arange(8, dtype=torch.int16).view(2, 4)}
    whole = torch.zeros(32, dtype=torch.uint8)
    save(state, 1, 0, whole)
    assert whole[:24].view(torch.float32).tolist() == [6, 7, 8, 9, 10, 11]
    for size in (1, 5, 24, 31):
        for at in range(0, 32, size):
            piece = whole[at : at + size].clone()
            restore(state, 0, at, piece)
        assert torch.equal(state["a"][0], state["a"][1])
        assert torch.equal(state["b"][0], state["b"][1])
        state["a"][0] = state["b"][0] = 0
    with pytest.raises(ValueError, match="holds 32 bytes"):
        save(state, 0, 8, whole)


def test_layouts_tell_everything() -> None:
    one = StateTensor(name="k", shape=(2, 3), dtype=torch.float32, layout="x")
    others = [
        replace(one, name="v"),
        replace(one, shape=(3, 2)),
        replace(one, dtype=torch.float16),
        replace(one, layout="y"),
    ]
    assert len({layout(asked) for asked in ([one], [], [one, one], *([other] for other in others))}) == 7
