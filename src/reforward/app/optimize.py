"""`optimize` and `demo`: open a house, turn the loop until the budget ends, sum up what the ledger says."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from reforward.app import chat, diffs
from reforward.app.budget import Budget, parse_seconds
from reforward.app.calibrate import calibrated
from reforward.app.cycle import Cycle
from reforward.app.events import Emit, Working
from reforward.app.facts import SessionFacts, count_verdicts, session_facts, tier_agreement
from reforward.app.house import House, open_house
from reforward.app.journal import Journal
from reforward.app.settings import Settings
from reforward.app.utilisation import Utilisation
from reforward.domain.candidate import Candidate
from reforward.domain.errors import BadInput
from reforward.domain.measurement import Measurement
from reforward.domain.run import Run
from reforward.domain.verdict import Verdict
from reforward.ledger.views import only
from reforward.propose.search import Passes

DEMO_PROMPT = "In one sentence: why is the sky blue?"
DEMO_TOKENS = 40


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a run came to. Every number is read from the ledger or from this process's clock."""

    run: str
    subject: str
    machine: str
    threads: int
    pages: str
    workload: str
    length_scale: float
    contract_gain: float
    screened: int
    skipped: int
    seconds: float
    candidates_per_hour: float
    """Fast-tier verdicts of this process, over the seconds that screening took."""
    verdicts: dict[str, int]
    tier_agreement: float | None
    """Spearman's rank correlation of gains between the tiers; None with fewer than three candidates in both."""
    best: str
    best_reason: str
    verdict: Verdict | None
    """Of the last promotion; None if nothing was proven faster."""
    session: SessionFacts | None
    """Of the last promotion: the incumbent before it against the best, at the slow tier."""
    changed: tuple[tuple[str, int, int], ...]
    """(file, lines added, lines removed) against the stock forward."""
    engine: Utilisation | None = None
    """How the engine's time was spent while agents worked with it; None for the mechanical search."""


@dataclass(frozen=True, kw_only=True)
class Driven:
    """What driving a run took."""

    screening_s: float
    engine: Utilisation | None = None


@dataclass(frozen=True, kw_only=True)
class Search:
    """Who proposes, and how a run is driven by it."""

    proposers: tuple[str, ...]
    drive: Callable[[House, Journal, Budget, Emit], Driven]
    """Until the budget or the ideas end."""


def _by_passes(house: House, journal: Journal, budget: Budget, emit: Emit) -> Driven:
    cycle = Cycle(house, journal, Passes(), budget, emit)
    cycle.run()
    return Driven(screening_s=cycle.screening_s)


PASSES = Search(proposers=("passes",), drive=_by_passes)
"""The mechanical search."""


def demo_settings() -> Settings:
    """Short, so that a pass takes seconds, and content with a gain of 10 %."""
    return Settings(min_gain=0.10, requests=4, length_scale=1 / 16)


def optimize(
    subject: str,
    settings: Settings,
    *,
    budget: str | None,
    candidates: int | None,
    emit: Emit,
    resume: bool = False,
    from_stock: bool = False,
    search: Search = PASSES,
) -> Report:
    """Run the loop on a subject, from the best that is known of it or from the stock; returns what it came to."""
    limits = Budget(seconds=parse_seconds(budget) if budget else None, candidates=candidates)
    begun = time.monotonic()
    opened = open_run(subject, settings, emit, resume=resume, from_stock=from_stock, proposers=search.proposers)
    with opened as (house, journal):
        before = journal.screened
        spent = search.drive(house, journal, limits, emit)
        screened = journal.screened - before
        return _report(house, journal, journal.incumbent, screened, spent, time.monotonic() - begun)


@contextmanager
def open_run(
    subject: str, settings: Settings, emit: Emit, *, resume: bool, from_stock: bool, proposers: tuple[str, ...]
) -> Generator[tuple[House, Journal]]:
    """A calibrated house and a run in it: a new one, or with `resume` the last one of the same settings."""
    with open_house(subject, settings, emit, resume=resume) as opened:
        house = calibrated(opened, emit)
        base = house.loaded.stock if from_stock else house.best()
        yield house, open_journal(house, base, resume=resume, proposers=proposers)


def open_journal(house: House, base: Candidate, *, resume: bool, proposers: tuple[str, ...]) -> Journal:
    """A new run from `base`, or with `resume` the last one that was asked for the very same things."""
    run = house.new_run(base=base, proposers=proposers)
    if resume:
        same = [old for old in house.ledger.records("run") if isinstance(old, Run) and _alike(old, run)]
        if not same:
            raise BadInput("no run with these settings is in the ledger; leave --resume out, or give the same options")
        run = same[-1]
    house.ledger.append(run)
    return Journal(house.ledger, run)


def _alike(old: Run, new: Run) -> bool:
    """All but the time; and the base, since what a run has promoted is the best known afterwards."""
    return replace(old, started_at="", base="") == replace(new, started_at="", base="")


def _report(house: House, journal: Journal, best: Candidate, screened: int, spent: Driven, seconds: float) -> Report:
    accepted = journal.accepted
    target = house.engine.target
    return Report(
        run=journal.run.id,
        subject=house.loaded.subject.name,
        machine=target.machine.words,
        threads=target.launch.threads,
        pages=target.launch.pages,
        workload=house.workload.source,
        length_scale=house.workload.length_scale,
        contract_gain=house.contract.min_gain,
        screened=journal.screened,
        skipped=len(journal.skipped),
        seconds=seconds,
        candidates_per_hour=3600 * screened / spent.screening_s if spent.screening_s else 0.0,
        verdicts=count_verdicts(journal.verdicts),
        tier_agreement=tier_agreement(journal.verdicts),
        best=best.id,
        best_reason=journal.incumbent_reason,
        verdict=accepted[-1] if accepted else None,
        session=session_facts(_measured(house, accepted[-1])) if accepted else None,
        changed=diffs.stat(house.loaded.stock, best),
        engine=spent.engine,
    )


def _measured(house: House, verdict: Verdict) -> Measurement:
    return only(house.ledger.get(verdict.measurement), Measurement)


def compare_answers(subject: str, settings: Settings, report: Report, emit: Emit) -> dict[str, str]:
    """One chat prompt, answered by the stock forward and, if another was proven better, by that."""
    with open_house(subject, settings) as house:
        tokenizer = house.loaded.tokenizer
        assert tokenizer is not None
        best = house.ledger.get(report.best)
        assert isinstance(best, Candidate)
        texts: dict[str, str] = {}
        both = {"stock": house.loaded.stock} | ({"best": best} if best.id != house.loaded.stock.id else {})
        for name, candidate in both.items():
            emit(Working(what=f"answering one prompt with the {name} forward"))
            texts[name] = chat.answer(house.engine, tokenizer, candidate, DEMO_PROMPT, tokens=DEMO_TOKENS).text
        return texts
