"""`judge selftest`: the corpus through the real engine, measurer and judge, on small subjects made on the fly."""

import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from reforward.app.config import load_config
from reforward.app.machine import physical_cores
from reforward.app.subjects import Loaded, load_subject, open_engine
from reforward.app.trust.catches import Layer, layer
from reforward.app.trust.outcomes import Outcome, Report
from reforward.app.trust.rates import renamed
from reforward.corpus.cases import GAIN_REASONS, Case, read_cases
from reforward.corpus.items import ITEMS
from reforward.corpus.tiny import MODULE_SUBJECT, write_llama
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.errors import BadInput, EngineLost
from reforward.domain.measurement import Failed, Measurement
from reforward.domain.subject import Host, Tier
from reforward.domain.verdict import Verdict
from reforward.domain.workload import Request, Workload
from reforward.engine.cpu import CpuEngine
from reforward.judge.standard import StandardJudge
from reforward.measure.measurer import Measurer
from reforward.propose.passes.base import TOOLS
from reforward.propose.search import tools_here

HOSTS: tuple[Host, ...] = ("lm", "module")
SHAPES = ((40, 6), (9, 12), (150, 4), (21, 8), (64, 10))
"""Prompt and output tokens of the requests of a pass; two are in flight, so slots are used again."""
INPUTS = 8
AA_SESSIONS = 10
"""Sessions of identical code per host in a full run."""
LIMITS = {"max_step_s": 30.0, "max_build_s": 120.0, "memory_slack": 128 << 20}
"""The tiny subjects' weights are no yardstick of memory: what PyTorch itself imports on demand is a hundred times as much."""
DEVICE_SLACK = 512 << 20
"""What a graph, or another thread's handle of a library, takes on a device."""
FULL = {"max_pairs": 9}
QUICK = {"fast_pairs": 2}
AGAIN = 2
"""Times that a case is measured anew whose session was disturbed by what else runs here: that says nothing of the judge."""
PATIENT = {"min_pairs": 2, "max_pairs": 8, "fast_pairs": 8}
"""For cheats that nothing but the clock gives away; their sessions end as soon as it does."""


Emit = Callable[[Outcome], None]


def selftest(*, host: Host | None, full: bool, only: str = "", emit: Emit) -> Report:
    """Run the corpus. The quick set has every item once and all honest cases, in sessions of two pairs of launches (up to
    eight where nothing but the clock gives a cheat away); the full one runs everything, in whole sessions, and identical arms.
    """
    begun = time.monotonic()
    cases = [case for case in read_cases() if host in (None, case.host) and (only in case.name or only in case.needs)]
    if not cases:
        raise BadInput(f"no case of the corpus has {only!r} in its name, or needs it")
    chosen = cases if full or only else quick_set(cases)
    outcomes: list[Outcome] = []
    for own in HOSTS if host is None else (host,):
        mine = [case for case in chosen if case.host == own]
        if mine:
            outcomes += _run_host(own, mine, full, emit, aa=AA_SESSIONS if full and not only else 0)
    left = not_run(cases, chosen, outcomes, full)
    return Report(outcomes=tuple(outcomes), not_run=left, seconds=time.monotonic() - begun)


def quick_set(cases: Sequence[Case]) -> list[Case]:
    """All honest cases, and of the hostile ones the first of each item and host, if possible one that needs no ruling on a gain."""
    chosen: list[Case] = [case for case in cases if case.honest]
    for host in HOSTS:
        for item in ITEMS:
            covering = [case for case in cases if case.host == host and item in case.covers]
            covering.sort(key=lambda case: case.gain_only)
            if covering and not any(case in chosen for case in covering):
                chosen.append(covering[0])
    return [case for case in cases if case in chosen]


def not_run(cases: Sequence[Case], chosen: Sequence[Case], outcomes: Sequence[Outcome], full: bool) -> tuple[str, ...]:
    """What a reader must not believe was tested."""
    lines: list[str] = []
    if len(chosen) < len(cases):
        lines.append(f"{len(cases) - len(chosen)} more hostile cases, whose item another case stands for (--full)")
    if not full:
        lines.append("rulings on a gain and sessions of identical arms (--full)")
    lines += [f"{o.host}/{o.case}: {o.detail}" for o in outcomes if o.ruling == "skipped"]
    return tuple(lines)


def _run_host(host: Host, cases: Sequence[Case], full: bool, emit: Emit, *, aa: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with open_bench(host, full) as bench:
        for case in cases:
            outcomes.append(bench.judge(case))
            emit(outcomes[-1])
        for number in range(aa):
            outcomes.append(bench.judge_identical(number))
            emit(outcomes[-1])
    return outcomes


class Bench:
    """One subject, held by one engine, on which case after case is judged."""

    def __init__(self, loaded: Loaded, engine: CpuEngine, workload: Workload, *, full: bool) -> None:
        self.loaded, self.engine, self.workload, self.full = loaded, engine, workload, full
        self.measurers: dict[tuple[str, int], Measurer] = {}

    def judge(self, case: Case) -> Outcome:
        """Run a case's sessions; the last one counts."""
        begun = time.monotonic()
        missing = self._missing(case)
        if missing:
            return _outcome(case, "skipped", "-", "-", missing, True, begun)
        try:
            candidate = case.candidate(self.loaded.stock)
            contract = self._contract(case.host, full=self.full, patient="slower" in case.expect)
            for _ in range(case.sessions - 1):
                self._session(candidate, contract, case.tier, steps=case.steps)
            facts, verdict = self._session(candidate, contract, case.tier, steps=case.steps)
            for _ in range(AGAIN):
                if verdict.reason == "disturbed":
                    facts, verdict = self._session(candidate, contract, case.tier, steps=case.steps)
        except EngineLost as error:
            return _outcome(case, "lost", "-", "-", str(error), False, begun)
        held = kept(verdict) if case.honest else caught(case, facts, verdict)
        return _outcome(case, verdict.ruling, _code(facts, verdict), layer(facts, verdict), verdict.detail, held, begun)

    def judge_identical(self, number: int) -> Outcome:
        """Two arms of the same code under two names. All of them share the error budget of one run."""
        begun = time.monotonic()
        candidate = renamed(self.loaded.stock, number)
        contract = self._contract(candidate.host, full=True, patient=False)
        facts, verdict = self._session(candidate, contract, "slow", confirmations=number)
        return Outcome(
            case=f"identical arms {number + 1}",
            host=self.loaded.subject.host,
            expected="identical",
            about="The stock forward against itself.",
            ruling=verdict.ruling,
            reason=_code(facts, verdict),
            layer=layer(facts, verdict),
            detail=verdict.detail,
            held=verdict.ruling != "accept",
            seconds=time.monotonic() - begun,
        )

    def close(self) -> None:
        """End the reference workers and the engine."""
        for measurer in self.measurers.values():
            measurer.close()
        self.engine.close()

    def _contract(self, host: Host, *, full: bool, patient: bool) -> Contract:
        contract = contract_for(host, full=full, patient=patient)
        return contract if self.engine.target.launch.device == "cpu" else replace(contract, memory_slack=DEVICE_SLACK)

    def _session(
        self, candidate: Candidate, contract: Contract, tier: Tier, *, steps: int = 1, confirmations: int = 0
    ) -> tuple[Measurement | Failed, Verdict]:
        judge = StandardJudge(confirmations=confirmations)
        measurer = self._measurer(contract, steps)
        stopping = judge.stopping(contract, tier)
        facts, outputs = measurer.measure(candidate, self.loaded.stock, self.workload, tier, stopping)
        return facts, judge.rule(facts, outputs, contract)

    def _measurer(self, contract: Contract, steps: int) -> Measurer:
        key = contract.id, steps
        if key not in self.measurers:
            encode = self.loaded.tokenizer.encode if self.loaded.tokenizer else None
            self.measurers[key] = Measurer(self.engine, self.loaded.stock, contract, encode=encode, steps=steps)
        return self.measurers[key]

    def _missing(self, case: Case) -> str:
        """What the case needs and this machine lacks; empty if nothing."""
        if "gpu" in case.needs and self.engine.target.launch.device == "cpu":
            return "needs a GPU, and an engine that runs on it"
        if "cpu" in case.needs and self.engine.target.launch.device != "cpu":
            return "its native code runs on a CPU"
        if "compiler" in case.needs and "c++" not in tools_here():
            return TOOLS["c++"]
        return ""


def contract_for(host: Host, *, full: bool, patient: bool, pairs: int = 2) -> Contract:
    """What the corpus is ruled under; `pairs` of launches if nothing else is said."""
    length = FULL if full else PATIENT if patient else QUICK | {"min_pairs": pairs, "max_pairs": pairs}
    return Contract(numerics="reassociated" if host == "lm" else "bit-exact", **LIMITS, **length)


@contextmanager
def open_bench(host: Host, full: bool) -> Generator[Bench]:
    """Make the subject, start an engine on it: of a language model where the configuration says, of a module on the CPU."""
    with tempfile.TemporaryDirectory(prefix="reforward-selftest-") as folder:
        config = replace(load_config(threads=min(2, physical_cores())), home=Path(folder), cache=Path(folder) / "cache")
        config = config if host == "lm" else replace(config, device="cpu")
        subject = str(write_llama(Path(folder) / "tiny-llama")) if host == "lm" else str(MODULE_SUBJECT)
        loaded = load_subject(subject, config)
        engine = open_engine(loaded, config, contract_for(host, full=full, patient=False))
        bench = Bench(loaded, engine, _workload(host), full=full)
        try:
            yield bench
        finally:
            bench.close()


def _workload(host: Host) -> Workload:
    if host == "module":
        return Workload(name="selftest", source="inputs() of the subject", inputs=INPUTS)
    requests = tuple(Request(arrival_s=0, prompt_tokens=p, output_tokens=o) for p, o in SHAPES)
    return Workload(name="selftest", source="made up", requests=requests, weights=(1.0,) * len(requests), concurrency=2)


def caught(case: Case, facts: Measurement | Failed, verdict: Verdict) -> bool:
    """Ruled as the case asks for: the reason, and for a failure the stage, if it names one."""
    return verdict.ruling != "accept" and bool({verdict.reason, _code(facts, verdict)} & set(case.expect))


def kept(verdict: Verdict) -> bool:
    """An honest candidate may be found slow, equal, or hard to tell; never wrong."""
    return verdict.ruling != "reject" or verdict.reason in GAIN_REASONS


def _code(facts: Measurement | Failed, verdict: Verdict) -> str:
    """The reason, for a failure with its stage: `failed@run`."""
    return f"{verdict.reason}@{facts.stage}" if isinstance(facts, Failed) else verdict.reason


def _outcome(case: Case, ruling: str, reason: str, caught_by: Layer, detail: str, held: bool, begun: float) -> Outcome:
    return Outcome(
        case=case.name,
        host=case.host,
        expected="honest" if case.honest else "hostile",
        about=case.about,
        ruling=ruling,
        reason=reason,
        layer=caught_by,
        detail=detail,
        held=held,
        seconds=time.monotonic() - begun,
    )
