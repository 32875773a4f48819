"""Importing costs little, prints nothing and brings no torch into the controller."""

import subprocess
import sys

import pytest

from house.source import modules

MOST_CPU_S = 0.2
TRIES = 5
PROBE = """
import sys, time
before = time.process_time()
import {name}
print(time.process_time() - before, *sorted({{"torch", "transformers", "sqlalchemy"}} & set(sys.modules)), file=sys.stderr)
"""
WORKER_SIDE = (
    "runtime.lm", "runtime.module", "runtime.bind", "runtime.forward", "runtime.graphs", "runtime.overlay", "runtime.profiler",
    "runtime.slots",
    "models.llama", "engine.worker", "engine.server", "engine.loader", "engine.keeper", "engine.identity", "engine.cuda.resident",
    "propose.kernels",
)  # fmt: skip
"""What runs next to candidate code, or is candidate code: torch is welcome there."""


def _import(name: str) -> tuple[float, list[str], str]:
    """CPU seconds, heavy packages that came along, and anything printed."""
    done = subprocess.run([sys.executable, "-c", PROBE.format(name=name)], capture_output=True, text=True, check=True)
    seconds, *heavy = done.stderr.split()
    return float(seconds), heavy, done.stdout


@pytest.mark.parametrize("name", ["reforward", "reforward.cli.main"])
def test_cheap_and_quiet(name: str) -> None:
    tries = [_import(name) for _ in range(TRIES)]
    assert min(seconds for seconds, _, _ in tries) < MOST_CPU_S
    assert tries[0][1:] == ([], "")


def test_the_controller_is_free_of_torch() -> None:
    names = [
        f"reforward.{module.name.removesuffix('.py').replace('/', '.').removesuffix('.__init__')}"
        for module in modules()
    ]
    controller = [name for name in names if not name.removeprefix("reforward.").startswith(WORKER_SIDE)]
    assert {"reforward.app.cycle", "reforward.engine.cpu", "reforward.judge.standard"} <= set(controller)
    _, heavy, printed = _import(", ".join(controller))
    assert "torch" not in heavy
    assert "transformers" not in heavy
    assert printed == ""
