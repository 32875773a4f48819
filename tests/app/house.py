"""A house without processes: the scripted engine, the in-memory ledger, the real judge."""

import random
from collections.abc import Mapping
from pathlib import Path

from reforward.app.config import Config
from reforward.app.house import House
from reforward.app.subjects import Loaded
from reforward.app.workloads import Traffic
from reforward.domain.contract import Contract
from reforward.domain.ports import Ledger
from reforward.domain.workload import Request, Workload
from reforward.engine.cpu import Source
from reforward.engine.scripted import Role, ScriptedEngine, tiny_subject
from reforward.ledger.memory import MemoryLedger
from reforward.measure.measurer import Measurer

SHAPES = ((20, 8), (9, 5), (31, 6), (12, 7))


def letters(text: str) -> list[int]:
    """A tokenizer of 64 tokens."""
    return [byte % 64 for byte in text.encode()]


def workload(name: str) -> Workload:
    """Four short requests."""
    requests = tuple(Request(arrival_s=0, prompt_tokens=p, output_tokens=o) for p, o in SHAPES)
    return Workload(name=name, source="test", requests=requests, weights=(1.0,) * len(requests), concurrency=2)


def scripted_house(roles: Mapping[str, Role], ledger: Ledger | None = None, seed: int = 0) -> House:
    """Candidates behave as `roles` says, by id; the stock forward as the engine's default."""
    subject, spec, stock = tiny_subject()
    engine = ScriptedEngine(subject, spec, dict(roles), seed=seed)
    contract = Contract(numerics="reassociated", min_gain=0.05)
    measurer = Measurer(
        engine, stock, contract, encode=letters, clock=engine.clock, draw=random.Random(seed),
        now=lambda: "2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    ledger = ledger or MemoryLedger()
    traffic = Traffic(search=workload("search"), held_out=workload("held out"))
    ledger.append(subject, stock, engine.target, contract, traffic.search, traffic.held_out)
    return House(
        config=Config(home=Path("unused"), cache=Path("unused"), threads=1),
        loaded=Loaded(subject=subject, stock=stock, source=Source(), spec=spec),
        engine=engine,
        ledger=ledger,
        contract=contract,
        traffic=traffic,
        measurer=measurer,
    )
