"""Workers of the tiny model: what they answer, what they share, and how they are stopped and ended."""

import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.tiny import LIMITS, SPEC, in_step, stock, variant
from reforward.domain.errors import CandidateFailed
from reforward.domain.measurement import Tensor
from reforward.domain.spec import Segment
from reforward.engine.cpu import CpuEngine
from reforward.engine.handle import LmHandle
from reforward.models import llama
from reforward.runtime.lm import LmHost, truncate

PROMPT = [5, 17, 900, 3000]


def start(engine: CpuEngine, depth: int = SPEC.layers) -> LmHandle:
    return engine.start_lm(engine.prepare(stock()), depth=depth, limits=LIMITS)


def array(tensor: Tensor) -> np.ndarray:
    return np.frombuffer(tensor.data, dtype="<f4").reshape(tensor.shape)


def weights_of(file: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(file)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_worker_computes_what_the_host_computes(engine: CpuEngine, checkpoint: Path, depth: int) -> None:
    torch.set_num_threads(1)
    spec, weights = truncate(SPEC, weights_of(checkpoint), depth)
    host = LmHost(
        llama.Forward, spec=spec, weights=weights, packed={}, limits=LIMITS, artifacts=Path(), dtype=torch.float32
    )
    segments = [Segment(slot=1, start=0, length=4)]
    wanted = torch.zeros(4, SPEC.vocab)
    tokens = host.step(PROMPT, segments, range(4), wanted)
    worker = start(engine, depth)
    try:
        assert worker.watermark == stock().id
        assert worker.step(PROMPT, segments, range(4), first=2) == tokens
        assert np.array_equal(array(worker.rows(2, 4)), wanted.numpy())
        more = torch.zeros(3, SPEC.vocab)
        assert worker.run(tokens[-1:], [1], [4], 3, first=0) == host.run(tokens[-1:], [1], [4], 3, more)
        assert np.array_equal(array(worker.rows(0, 3)), more.numpy())
    finally:
        worker.close()


def test_the_oracle_is_closer_to_the_truth_than_a_float(engine: CpuEngine) -> None:
    worker = engine.start_lm(engine.prepare(stock()), depth=2, limits=LIMITS, oracle=True)
    plain = start(engine)
    try:
        segments = [Segment(slot=0, start=0, length=4)]
        assert worker.step(PROMPT, segments, [3], 0) == plain.step(PROMPT, segments, [3], 0)
        apart = np.abs(array(worker.rows(0, 1)) - array(plain.rows(0, 1))).max()
        assert 0 < apart < 1e-3
    finally:
        worker.close()
        plain.close()


def test_weights_are_in_memory_once(engine: CpuEngine) -> None:
    workers = [start(engine) for _ in range(4)]
    try:
        for worker in workers:
            worker.step(PROMPT, [Segment(slot=0, start=0, length=4)], [3], 0)
        shared = sum(_rollup(worker.process.pid, "Pss_Shmem") for worker in workers)
        mapped = [_rollup(worker.process.pid, "Rss") for worker in workers]
        nbytes = workers[0].memory().weights
        assert min(mapped) > nbytes
        assert shared < nbytes + len(workers) * LIMITS.rows * SPEC.vocab * 4 + (4 << 20)
    finally:
        for worker in workers:
            worker.close()


def _rollup(pid: int, field: str) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def test_memory_charges_what_the_candidate_holds(engine: CpuEngine) -> None:
    hoarder = variant(
        "    def __init__(self, build):\n"
        "        super().__init__(build)\n"
        "        import torch\n"
        "        self.hoard = torch.ones(64 << 20, dtype=torch.uint8)\n"
    )
    plain = start(engine)
    greedy = engine.start_lm(engine.prepare(hoarder), depth=2, limits=LIMITS)
    try:
        assert plain.memory().state == 2 * 2 * LIMITS.slots * SPEC.kv_heads * LIMITS.length * SPEC.head_dim * 4
        extra = greedy.memory().private - plain.memory().private
        assert 60 << 20 < extra < 80 << 20
    finally:
        plain.close()
        greedy.close()


def test_a_paused_worker_stands_still_with_all_that_it_started(engine: CpuEngine) -> None:
    counting = in_step(
        "if os.fork() == 0:",
        "    os.setsid()",
        "    while True: pass",
    )
    worker = engine.start_lm(engine.prepare(counting), depth=1, limits=LIMITS)
    try:
        worker.step(PROMPT, [Segment(slot=0, start=0, length=4)], [3], 0)
        worker.pause()
        spent = _children_ticks(worker.process.pid)
        time.sleep(0.3)
        assert _children_ticks(worker.process.pid) == spent
        worker.resume()
        time.sleep(0.5)
        assert _children_ticks(worker.process.pid) > spent
        assert worker.step(PROMPT[:1], [Segment(slot=1, start=0, length=1)], [0], 0)
    finally:
        worker.close()


def _children_ticks(pid: int) -> int:
    children = [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    assert children
    stats = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split() for child in children]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats)


def test_closing_twice_is_safe_and_ends_the_process(engine: CpuEngine) -> None:
    worker = start(engine)
    pid = worker.process.pid
    worker.close()
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_syntax_error_says_where(engine: CpuEngine) -> None:
    broken = stock().with_files({"forward.py": "class Forward:\n    def step(self:\n"})
    with pytest.raises(CandidateFailed, match=r"forward.py, line 2") as caught:
        engine.start_lm(engine.prepare(broken), depth=1, limits=LIMITS)
    assert caught.value.stage == "source"


def test_a_forward_without_step_is_refused(engine: CpuEngine) -> None:
    empty = stock().with_files({"forward.py": "class Forward:\n    pass\n"})
    with pytest.raises(CandidateFailed, match="Forward has no") as caught:
        engine.start_lm(engine.prepare(empty), depth=1, limits=LIMITS)
    assert caught.value.stage == "load"
