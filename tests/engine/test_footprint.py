"""Memory that a worker keeps out of its own pages is charged to it; what a helper inherited is not."""

import pytest

from engine.tiny import LIMITS, stock, variant
from reforward.domain.candidate import Candidate
from reforward.engine.cpu import CpuEngine

SIZE = 40 << 20
INIT = "    def __init__(self, build):\n        super().__init__(build)\n"
HOLD = {
    "own pages": f"        self.held = bytearray(b'x') * {SIZE}\n",
    "a file": f"        open('/dev/shm/held', 'wb').write(b'x' * {SIZE // 40}) and None\n".replace("wb", "ab") * 40,
    "a file without a name": f"        self.held = os.memfd_create('h')\n        os.write(self.held, b'x' * {SIZE})\n",
    "a child's shared mapping": (
        "        import mmap, signal\n"
        "        reader, writer = os.pipe()\n"
        "        if os.fork() == 0:\n"
        f"            held = mmap.mmap(-1, {SIZE})\n"
        f"            held.write(b'x' * (1 << 20) * {SIZE >> 20})\n"
        "            os.write(writer, b'x')\n"
        "            signal.pause()\n"
        "        os.read(reader, 1)\n"
    ),
}
HELPERS = "        import signal\n        for _ in range(3):\n            if os.fork() == 0: signal.pause()\n"


def private(engine: CpuEngine, candidate: Candidate) -> int:
    worker = engine.start_lm(engine.prepare(candidate), depth=1, limits=LIMITS)
    try:
        return worker.memory().private
    finally:
        worker.close()


@pytest.mark.parametrize("where", HOLD)
def test_memory_is_charged_wherever_it_lies(engine: CpuEngine, where: str) -> None:
    plain, held = private(engine, stock()), private(engine, variant(INIT + HOLD[where]))
    assert 0.9 * SIZE < held - plain < 2.5 * SIZE, (plain, held)


def test_helpers_that_only_inherited_cost_little(engine: CpuEngine) -> None:
    assert private(engine, variant(INIT + HELPERS)) - private(engine, stock()) < 40 << 20
