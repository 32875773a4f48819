"""What the benchmarks share: an engine on SmolLM2, the best known forward, variants. Nothing is recorded in the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from reforward.app.config import load_config
from reforward.app.subjects import BUILT_IN, Loaded, load_subject
from reforward.app.subjects import open_engine as start
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.engine.cpu import CpuEngine
from reforward.ledger.store import SqlLedger
from reforward.ledger.views import best_candidate
from reforward.models import smollm2
from reforward.propose.passes import PASSES
from reforward.propose.search import combined, tools_here

CONTRACT = Contract(numerics="reassociated")
PACKING = '''

class Packing(Forward):
    """Every matrix once more, in a packed copy that is used instead of the weights: the cost of packing, nothing else."""

    @staticmethod
    def pack(spec, weights):
        return {name: tensor.clone() for name, tensor in weights.items() if tensor.dim() == 2}

    def __init__(self, build):
        super().__init__(build)
        self.weights = {**build.weights, **build.packed}


Forward = Packing
'''


@contextmanager
def open_engine(subject: str, threads: int, device: str = "cpu") -> Iterator[tuple[CpuEngine, Loaded]]:
    """A fresh engine on a subject, with its weights loaded."""
    config = replace(load_config(threads=threads), device=device)
    loaded = load_subject(subject, config)
    engine = start(loaded, config, CONTRACT)
    try:
        yield engine, loaded
    finally:
        engine.close()


def best_known(engine: CpuEngine, loaded: Loaded) -> tuple[str, Candidate]:
    """Where it comes from, and the best forward: the ledger's last accept here, else all passes that the machine can build."""
    config = load_config()
    ledger = SqlLedger(config.ledger, config.blobs)
    found = best_candidate(ledger, loaded.subject, engine.target, CONTRACT)
    if found is not None:
        return "the ledger's best", found
    tools = tools_here()
    usable = [one for one in PASSES if not one.slow and set(one.needs) <= tools and one.rank > 0]
    return "all mechanical passes", combined(loaded.stock, usable)


def packing_variant(loaded: Loaded) -> Candidate:
    """The stock forward that reads a packed copy of every matrix."""
    entry = loaded.stock.entry_file
    return loaded.stock.with_files({entry: (loaded.stock.text_of(entry) or "") + PACKING})


def smollm2_folder(subject: str) -> Path:
    """The converted checkpoint."""
    return smollm2.ensure(load_config().cache, BUILT_IN[subject])
