"""Runs a candidate of the `lm` host in this process, on small random weights, through every kind of call."""

import hashlib
import importlib.util
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from reforward.domain.candidate import Candidate
from reforward.domain.spec import Limits, ModelSpec, RopeScaling, Segment
from reforward.models.checkpoint import expected_shapes
from reforward.runtime.bind import load_forward, write_files
from reforward.runtime.lm import LmHost, pack

LIMITS = Limits(slots=3, length=96, tokens=80, rows=40, steps=4)

BASE = ModelSpec(
    family="llama", layers=2, hidden=48, heads=6, kv_heads=2, head_dim=20, intermediate=70, vocab=101,
    rms_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip
SPECS = {
    "llama": replace(BASE, tied=True, rope_scaling=RopeScaling(kind="llama3", factor=4.0)),
    "qwen2": replace(BASE, family="qwen2", qkv_bias=True),
    "qwen3": replace(BASE, family="qwen3", head_dim=64, qk_norm=True),
    "mistral": replace(BASE, family="mistral", head_dim=36, kv_heads=6, sliding_window=5),
}


@cache
def weights(family: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Random weights of a spec, at the scale of trained ones."""
    generator = torch.Generator().manual_seed(7)
    made: dict[str, Tensor] = {}
    for name, shape in expected_shapes(SPECS[family]).items():
        noise = torch.randn(shape, generator=generator)
        made[name] = (noise * shape[-1] ** -0.5 if len(shape) == 2 else 1 + 0.1 * noise).to(dtype)
    return made


def built(sources: str, candidate: Candidate) -> Path:
    """The candidate's artifacts, built once per set of sources."""
    folder, out = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    write_files({file.path: file.text for file in candidate.files}, folder)
    spec = importlib.util.spec_from_file_location("build_stage", folder / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build(out)
    return out


_BUILDS: dict[str, Path] = {}


def artifacts(candidate: Candidate) -> Path:
    """Folder of what the candidate's build stage made; an empty one if it has none."""
    if candidate.text_of("build.py") is None:
        return Path(tempfile.gettempdir())
    sources = [f.text for f in candidate.files if f.path.endswith((".cpp", ".h"))]
    key = hashlib.sha256("\0".join(sources).encode()).hexdigest()
    if key not in _BUILDS:
        _BUILDS[key] = built(key, candidate)
    return _BUILDS[key]


@contextmanager
def hosted(candidate: Candidate, family: str, dtype: torch.dtype, oracle: bool = False) -> Generator[LmHost]:
    """The candidate, ready to step; the process is left as it was."""
    before, path, threads = set(sys.modules), list(sys.path), torch.get_num_threads()
    try:
        files = {file.path: file.text for file in candidate.files}
        forward = load_forward(files, candidate.entry, Path(tempfile.mkdtemp()))
        spec, own = SPECS[family], weights(family, dtype)
        yield LmHost(
            forward, spec=spec, weights=own, packed=pack(forward, spec, own), limits=LIMITS,
            artifacts=artifacts(candidate), dtype=dtype, oracle=oracle,
        )  # fmt: skip
    finally:
        torch.set_num_threads(threads)
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if not name.startswith(("torch", "reforward", "numpy")):
                del sys.modules[name]


def text(seed: int, count: int, vocab: int = BASE.vocab) -> list[int]:
    """Token ids."""
    drawn = torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed))
    return [int(token) for token in drawn]


def scenario(host: LmHost) -> Tensor:
    """Logits of a prefill, a second chunk, a mixed batch, decoding at batch 1 to 3, a long prefill: [rows, vocab]."""
    rows: list[Tensor] = []

    def step(tokens: Sequence[int], segments: Sequence[tuple[int, int, int]], wanted: Sequence[int]) -> None:
        out = torch.full((len(wanted), host.spec.vocab), float("nan"))
        host.step(tokens, [Segment(slot=s, start=a, length=n) for s, a, n in segments], wanted, out)
        rows.append(out)

    step(text(1, 7), [(1, 0, 7)], [2, 6])
    step(text(2, 5), [(1, 7, 5)], range(5))
    step(text(3, 10), [(1, 12, 1), (0, 0, 9)], [0, 9])
    step(text(4, 2), [(0, 9, 1), (1, 13, 1)], [0, 1])
    for at in range(10, 20):
        step(text(at, 1), [(0, at, 1)], [0])
    step(text(5, 12), [(1, 0, 5), (2, 0, 7)], [4, 11])
    for at in range(3):
        step(text(30 + at, 3), [(2, 7 + at, 1), (0, 20 + at, 1), (1, 5 + at, 1)], [0, 2])
    step(text(6, 2), [(2, 10, 1), (1, 8, 1)], [])
    step(text(9, 72), [(0, 0, 70), (1, 9, 2)], [0, 31, 69, 71])
    step(text(8, 1), [(2, 11, 1)], [0])
    return torch.cat(rows)


def greedy_run(host: LmHost) -> tuple[list[list[int]], Tensor]:
    """Four greedy steps of two sequences after a prefill, through `run` if the forward has it."""
    first = torch.empty(2, host.spec.vocab)
    last = host.step(
        text(1, 9), [Segment(slot=0, start=0, length=4), Segment(slot=2, start=0, length=5)], [3, 8], first
    )
    logits = torch.empty(8, host.spec.vocab)
    return host.run(last, [0, 2], [4, 5], 4, logits), logits
