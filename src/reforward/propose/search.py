"""The search of the mechanical proposer: every pass alone, then the ones that helped, added greedily to the best."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from reforward.domain.candidate import Candidate
from reforward.domain.ports import Brief, Idea, Unable
from reforward.domain.verdict import Verdict
from reforward.propose.passes import PASSES
from reforward.propose.passes.base import TOOLS, Pass

COMPILER = "g++"


def tools_here() -> frozenset[str]:
    """Which of `TOOLS` this machine has."""
    return frozenset({"c++"} if shutil.which(COMPILER) else ())


@lru_cache(maxsize=1024)
def applied(one: Pass, candidate: Candidate) -> Candidate | Unable | None:
    """`one.apply(candidate)`, remembered: a search asks for the same ones again and again.

    Users' code has shapes that no author of a pass has seen: a pass that fails is recorded as skipped, and the run goes on.
    """
    try:
        return one.apply(candidate)
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends this pass and not the run
        remedy = f"it failed on this code ({type(error).__name__}: {error}), a defect of the pass: please report it"
        return Unable(author="passes", what=f"pass {one.name}", remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A set of passes over one base, and the candidate that they make."""

    passes: tuple[Pass, ...]
    candidate: Candidate


class Passes:
    """Mechanical rewrites of the incumbent, searched. A pure function of the brief and these settings."""

    def __init__(
        self, passes: Sequence[Pass] = PASSES, *, tools: frozenset[str] | None = None, slow: bool = False
    ) -> None:
        self.name = "passes"
        self.passes = tuple(passes)
        self.tools = tools_here() if tools is None else tools
        self.slow = slow

    def propose(self, brief: Brief) -> Idea | Unable | None:
        """The next untried pass or combination over the incumbent; None when all have been ruled on."""
        ruled = fast_verdicts(brief.verdicts)
        alone = list(self.alone(brief))
        for item in alone:
            if isinstance(item, Unable):
                if item.what not in brief.skipped:
                    return item
            elif item.candidate.id not in ruled:
                return idea_of(item, brief.incumbent)
        singles = [item for item in alone if isinstance(item, Trial)]
        trial = next_combination(singles, brief.incumbent, ruled)
        return idea_of(trial, brief.incumbent) if trial else None

    def alone(self, brief: Brief) -> Iterator[Trial | Unable]:
        """Each pass that changes the incumbent, the most promising first; what the machine lacks as `Unable`."""
        seen = {brief.incumbent.id, brief.stock.id}
        for one in sorted(self.passes, key=lambda item: (item.slow, -item.rank)):
            if (one.slow and not self.slow) or (brief.contract.numerics == "bit-exact" and one.bits == "other"):
                continue
            if one.threads > brief.target.launch.threads:
                continue
            candidate = applied(one, brief.incumbent)
            if isinstance(candidate, Unable):
                yield candidate
                continue
            if candidate is None or candidate.id in seen:
                continue
            seen.add(candidate.id)
            missing = [tool for tool in one.needs if tool not in self.tools]
            if missing:
                yield Unable(author=self.name, what=f"pass {one.name}", remedy=TOOLS[missing[0]])
            else:
                yield Trial(passes=(one,), candidate=candidate)


def fast_verdicts(verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    """The latest ruling per candidate; the fast tier's where both exist, since only those compare with one another."""
    found: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.tier == "fast" or verdict.candidate not in found:
            found[verdict.candidate] = verdict
    return found


def gain(verdict: Verdict) -> float:
    """Measured gain of a candidate that keeps its contract; minus one where there is none."""
    sound = verdict.ruling == "accept" or verdict.reason in ("undecided", "disturbed", "no-gain", "slower")
    return verdict.gain.mid if verdict.gain and sound else -1.0


def combined(base: Candidate, passes: Sequence[Pass]) -> Candidate:
    """All passes over `base`, in the order of the registry; one that finds nothing left to change is passed over."""
    candidate = base
    for one in sorted(passes, key=lambda item: PASSES.index(item) if item in PASSES else len(PASSES)):
        changed = applied(one, candidate)
        candidate = changed if isinstance(changed, Candidate) else candidate
    return candidate


def next_combination(singles: Sequence[Trial], base: Candidate, ruled: dict[str, Verdict]) -> Trial | None:
    """Climb: add each pass that helped alone to the best so far, keep it if the sum measures better."""
    helped = sorted(singles, key=lambda trial: -gain(ruled[trial.candidate.id]))
    helped = [trial for trial in helped if gain(ruled[trial.candidate.id]) > 0]
    if not helped:
        return None
    best = helped[0]
    for other in helped[1:]:
        passes = (*best.passes, *other.passes)
        candidate = combined(base, passes)
        if candidate.id == best.candidate.id:
            continue
        trial = Trial(passes=passes, candidate=candidate)
        if candidate.id not in ruled:
            return trial
        if gain(ruled[candidate.id]) > gain(ruled[best.candidate.id]):
            best = trial
    return None


def idea_of(trial: Trial, base: Candidate) -> Idea:
    """What is said about a trial."""
    names = " + ".join(one.name for one in trial.passes)
    reason = f"{names}: {trial.passes[0].reason}" if len(trial.passes) == 1 else f"{names}: each helped alone"
    return Idea(candidate=trial.candidate, parent=base.id, author="passes", reason=reason)
