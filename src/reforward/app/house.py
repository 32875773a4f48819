"""Everything one command works with, built from settings and passed around: subject, engine, judge, ledger, workloads."""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from reforward.app.budget import InTime
from reforward.app.config import Config, load_config
from reforward.app.events import Emit, Opened, Working, ignore
from reforward.app.journal import Journal
from reforward.app.settings import Settings
from reforward.app.subjects import Loaded, load_subject, named, open_engine
from reforward.app.told import Told
from reforward.app.workloads import Observed, Traffic, observed, workloads
from reforward.domain.calibration import Noise
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.errors import BadInput
from reforward.domain.ports import Brief, Engine, Judge, Ledger
from reforward.domain.run import Run
from reforward.domain.subject import Subject, Tier
from reforward.domain.target import Target
from reforward.domain.workload import Workload
from reforward.judge.standard import StandardJudge
from reforward.ledger.store import SqlLedger
from reforward.ledger.views import best_candidate, every, only
from reforward.measure.measurer import Facts, Measurer


@dataclass(frozen=True, kw_only=True)
class House:
    """The actors and values of one command. Build it with `open_house`."""

    config: Config
    loaded: Loaded
    engine: Engine
    ledger: Ledger
    contract: Contract
    traffic: Traffic
    measurer: Measurer
    noise: Noise | None = None
    """Of the fast tier on this machine; see `calibrate.calibrated`."""
    floors: Mapping[Tier, float] = field(default_factory=dict[Tier, float])
    """Least seconds per decoded token on this machine; empty before it is calibrated, and for modules."""
    emit: Emit = ignore

    @property
    def workload(self) -> Workload:
        """What candidates are searched on."""
        return self.traffic.search

    def judge(self, confirmations: int) -> Judge:
        """The judge of the next session, after so many confirmations that share its error budget."""
        return StandardJudge(confirmations=confirmations, noise=self.noise, floors=self.floors)

    def measure(
        self, candidate: Candidate, incumbent: Candidate, tier: Tier, *, confirmations: int, seconds: float = math.inf
    ) -> Facts:
        """One session: searched traffic at the fast tier, traffic held out in time at the slow tier.

        After `seconds` it ends at the next complete pair of launches.
        """
        workload = self.traffic.search if tier == "fast" else self.traffic.held_out
        rule = InTime(self.judge(confirmations).stopping(self.contract, tier), seconds)
        stopping = Told(rule, self.contract.pairs_at(tier), self.emit)
        return self.measurer.measure(candidate, incumbent, workload, tier, stopping)

    def brief(self, journal: Journal) -> Brief:
        """What a proposer is shown."""
        return Brief(
            subject=self.loaded.subject,
            target=self.engine.target,
            workload=self.workload,
            contract=self.contract,
            stock=self.loaded.stock,
            incumbent=journal.incumbent,
            verdicts=tuple(journal.verdicts),
            skipped=tuple(sorted(journal.skipped)),
        )

    def new_run(self, *, base: Candidate, proposers: tuple[str, ...]) -> Run:
        """A run of these settings, not yet in the ledger; `base` is its first incumbent."""
        return Run(
            subject=self.loaded.subject.id,
            target=self.engine.target.id,
            contract=self.contract.id,
            workload=self.traffic.search.id,
            held_out=self.traffic.held_out.id,
            base=base.id,
            proposers=proposers,
            started_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        )

    def best(self) -> Candidate:
        """The best accepted candidate for this subject on this target under this numerics class, or the stock."""
        return best_candidate(self.ledger, self.loaded.subject, self.engine.target, self.contract) or self.loaded.stock

    def describe(self) -> str:
        """One line that says what will be measured, on what."""
        launch = self.engine.target.launch
        return (
            f"{self.loaded.subject.name}: {self.traffic.describe()}; {launch.words}; "
            f"gain that counts {self.contract.min_gain:.0%}, {self.contract.numerics}"
        )


@contextmanager
def open_house(subject: str, settings: Settings, emit: Emit = ignore, *, resume: bool = False) -> Generator[House]:
    """Read the traffic, load the subject, start the engine, open the ledger; everything is closed at the end.

    With `resume`, a scale of lengths that the settings leave open is taken from an earlier run of the same settings.
    """
    config = load_config(threads=settings.threads)
    seen = _seen(subject, settings)
    emit(Working(what=f"opening {subject}: weights, engine, ledger"))
    loaded = load_subject(subject, config)
    default = "reassociated" if loaded.subject.host == "lm" else "bit-exact"
    numerics, least = settings.numerics or default, settings.min_gain
    contract = Contract(numerics=numerics, min_gain=least, max_pairs=settings.max_pairs)
    ledger = SqlLedger(config.ledger, config.blobs)
    engine = open_engine(loaded, config, contract)
    try:
        known = _searched(ledger, loaded.subject, engine.target, contract) if resume else ()
        traffic = workloads(loaded, engine, settings, seen, known)
        with house_on(config, loaded, engine, ledger, contract, traffic, emit) as house:
            emit(Opened(what=house.describe(), warning=traffic.warning()))
            yield house
    finally:
        engine.close()


@contextmanager
def house_on(
    config: Config, loaded: Loaded, engine: Engine, ledger: Ledger, contract: Contract, traffic: Traffic, emit: Emit
) -> Generator[House]:
    """A house on an engine that runs already; its values are in the ledger, its reference workers are ended at the end."""
    encode = loaded.tokenizer.encode if loaded.tokenizer else None
    measurer = Measurer(engine, loaded.stock, contract, encode=encode)
    ledger.append(loaded.subject, loaded.stock, engine.target, contract, traffic.search, traffic.held_out)
    try:
        yield House(
            config=config,
            loaded=loaded,
            engine=engine,
            ledger=ledger,
            contract=contract,
            traffic=traffic,
            measurer=measurer,
            emit=emit,
        )
    finally:
        measurer.close()


def _seen(subject: str, settings: Settings) -> Observed | None:
    """The traffic of a language model; None for a module, which draws its own inputs."""
    if named(subject).host == "lm":
        return observed(settings)
    if settings.traffic:
        raise BadInput(f"--traffic is for language models; {subject} is a module and draws its own inputs()")
    return None


def _searched(ledger: Ledger, subject: Subject, target: Target, contract: Contract) -> tuple[Workload, ...]:
    """What earlier runs of this subject on this target under this contract searched on, newest first."""
    wanted = (subject.id, target.id, contract.id)
    runs = [run for run in every(ledger, Run) if (run.subject, run.target, run.contract) == wanted]
    return tuple(only(ledger.get(run.workload), Workload) for run in reversed(runs))
