"""Packed tensors: made once, shared, sealed, charged."""

from pathlib import Path

import pytest

from engine.test_lifecycle import _rollup
from engine.tiny import LIMITS, SPEC, variant
from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed
from reforward.domain.spec import Segment
from reforward.engine.cpu import KEPT_PACKS, CpuEngine

HEAD = "return {'head': weights['lm_head.weight'].t().contiguous() * SCALE}"
ONE = ([7], [Segment(slot=0, start=0, length=1)], [0], 0)
HEAD_BYTES = SPEC.vocab * SPEC.hidden * 4


def packing(line: str, scale: int = 1, use: str = "") -> Candidate:
    body = (
        f"    @staticmethod\n    def pack(spec, weights):\n        {line.replace('SCALE', str(scale))}\n"
        "    def __init__(self, build):\n        super().__init__(build)\n        self.packed = build.packed\n"
        f"    def step(self, batch, logits):\n        {use or 'pass'}\n        super().step(batch, logits)\n"
    )
    return variant(body)


def test_packed_tensors_are_made_once_and_shared(engine: CpuEngine) -> None:
    use = "assert self.packed['head'].shape == (64, 4096) and self.packed['head'].sum() != 0"
    candidate = packing(HEAD, use=use)
    prepared = engine.prepare(candidate)
    assert prepared.packed_bytes == HEAD_BYTES
    assert prepared.pack_s > 0
    assert engine.prepare(candidate).pack_s == 0
    workers = [engine.start_lm(prepared, depth=2, limits=LIMITS) for _ in range(3)]
    try:
        for worker in workers:
            worker.step(*ONE)
        assert workers[0].memory().packed == HEAD_BYTES
        shared = sum(_rollup(worker.process.pid, "Pss_Shmem") for worker in workers)
        outboxes = len(workers) * LIMITS.rows * SPEC.vocab * 4
        assert shared < workers[0].memory().weights + HEAD_BYTES + outboxes + (6 << 20)
    finally:
        for worker in workers:
            worker.close()


def test_packed_tensors_are_read_only(engine: CpuEngine) -> None:
    prepared = engine.prepare(packing(HEAD, scale=2, use="self.packed['head'].add_(1)"))
    worker = engine.start_lm(prepared, depth=1, limits=LIMITS)
    with pytest.raises(CandidateFailed, match="SIGSEGV"):
        worker.step(*ONE)


def test_only_the_latest_packs_stay(engine: CpuEngine) -> None:
    prepared = [engine.prepare(packing(HEAD, scale=scale)) for scale in range(3, 4 + KEPT_PACKS)]
    assert prepared[0].packed not in engine.packs
    assert len(engine.packs) == KEPT_PACKS
    worker = engine.start_lm(prepared[0], depth=1, limits=LIMITS)
    worker.close()
    assert prepared[0].packed in engine.packs


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("raise KeyError('lost')", "KeyError"),
        ("return {'head': weights['lm_head.weight'][:5]}", "view of a weight"),
        ("return {'head': 3}", "not a tensor"),
        ("os._exit(0)", "code 0"),
        ("weights['model.norm.weight'].add_(1)", "SIGSEGV"),
    ],
)
def test_a_broken_pack(engine: CpuEngine, line: str, words: str) -> None:
    before = dict(engine.packs)
    with pytest.raises(CandidateFailed) as caught:
        engine.prepare(packing(line))
    assert caught.value.stage == "pack"
    assert words in caught.value.reason
    assert engine.packs == before or len(engine.packs) == KEPT_PACKS - 1


def test_what_a_pack_claims_is_checked(engine: CpuEngine) -> None:
    forge = (
        "import socket; from reforward.engine import wire; "
        "[wire.send(socket.socket(fileno=os.dup(n)), wire.Packed(tensors=(wire.Stored(name='x', dtype='float32', "
        "shape=(1,), offset=1 << 40, nbytes=4),))) for n in range(3, 20) if os.path.exists(f'/proc/self/fd/{n}') "
        "and 'socket' in os.readlink(f'/proc/self/fd/{n}')]; time.sleep(60)"
    )
    with pytest.raises(CandidateFailed, match="refused") as caught:
        engine.prepare(packing(forge))
    assert caught.value.stage == "pack"


def test_a_method_called_pack_in_another_class_packs_nothing(engine: CpuEngine) -> None:
    prepared = engine.prepare(variant("", top="class Other:\n    def pack(self): pass\n"))
    assert (prepared.packed, prepared.packed_bytes) == ("", 0)
    assert Path(prepared.artifacts) == Path()
