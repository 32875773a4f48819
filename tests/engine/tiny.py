"""A tiny random checkpoint, an engine on it, and candidates that misbehave, for tests of real processes."""

import hashlib
from pathlib import Path

import numpy as np

from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.spec import Limits, ModelSpec
from reforward.domain.subject import Subject
from reforward.domain.target import Machine
from reforward.engine.client import Source
from reforward.engine.cpu import CpuEngine, Deadlines
from reforward.engine.wire import Stored
from reforward.models.checkpoint import expected_shapes, read_header, write_safetensors
from reforward.models.families import stock_candidate

SPEC = ModelSpec(
    family="llama",
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    intermediate=128,
    vocab=4096,
    rms_eps=1e-5,
    rope_theta=10000.0,
)
LIMITS = Limits(slots=2, length=32, tokens=16, rows=16, steps=4)
DEADLINES = Deadlines(load_s=30, step_s=20, build_s=60)
MACHINE = Machine(cpu="test", cores=1, isa="generic", memory_gib=1)


def write_checkpoint(folder: Path) -> Path:
    """Random weights of `SPEC`, the same each time."""
    generator = np.random.default_rng(0)
    tensors = {}
    for name, shape in expected_shapes(SPEC).items():
        data = (generator.standard_normal(shape) * 0.2).astype("<f4")
        tensors[name] = ("F32", shape, data.tobytes())
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    return folder / "model.safetensors"


def subject_of(file: Path) -> tuple[Subject, tuple[Stored, ...]]:
    """The tensors of one safetensors file, as a subject."""
    entries = read_header(file)
    stored = tuple(
        Stored(name=e.name, dtype=e.dtype, shape=e.shape, offset=e.offset, nbytes=e.nbytes, file=str(e.file))
        for e in entries
    )
    subject = Subject(
        name="tiny",
        host="lm",
        weights=hashlib.sha256(file.read_bytes()).hexdigest(),
        stock=stock().id,
        spec="{}",
        dtype="float32",
        depth=SPEC.layers,
        fast_depth=1,
    )
    return subject, stored


def open_engine(file: Path, cache: Path, **changed: int) -> CpuEngine:
    """An engine that holds the tensors of one safetensors file."""
    subject, stored = subject_of(file)
    return CpuEngine(
        Source(tensors=stored),
        subject,
        SPEC,
        threads=1,
        machine=MACHINE,
        software=("test",),
        cache=cache,
        deadlines=DEADLINES,
        **changed,
    )


def stock() -> Candidate:
    """The stock forward."""
    return stock_candidate("llama")


def variant(body: str, *, top: str = "", more: dict[str, str] | None = None) -> Candidate:
    """The stock forward with methods of `body` in its place; `top` runs at import, `more` files lie beside it."""
    text = f"import os, sys, time\nimport twin\n{top}\n\nclass Forward(twin.Forward):\n{body or '    pass'}\n"
    twin = stock().text_of("forward.py")
    assert twin is not None
    files = {"forward.py": text, "twin.py": twin} | (more or {})
    tree = tuple(SourceFile(path=path, text=files[path]) for path in sorted(files))
    return Candidate(host="lm", entry="forward.py:Forward", files=tree)


def in_step(*lines: str) -> Candidate:
    """The stock forward whose `step` first runs these lines."""
    body = "".join(f"        {line}\n" for line in lines)
    return variant(f"    def step(self, batch, logits):\n{body}        super().step(batch, logits)\n")
