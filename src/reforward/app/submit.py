"""`measure` and `submit`: one source tree from a folder against the incumbent."""

from pathlib import Path

from reforward.app.budget import Budget
from reforward.app.calibrate import calibrated
from reforward.app.cycle import Cycle
from reforward.app.events import Emit, Working
from reforward.app.facts import SessionFacts, session_facts
from reforward.app.house import House, open_house
from reforward.app.journal import Journal
from reforward.app.settings import Settings
from reforward.app.subjects import named
from reforward.app.trees import read_files, read_tree
from reforward.domain.candidate import Candidate
from reforward.domain.errors import BadInput, CandidateFailed
from reforward.domain.measurement import Failed
from reforward.domain.ports import Idea
from reforward.domain.record import short
from reforward.domain.subject import Tier
from reforward.domain.verdict import Verdict
from reforward.ledger.views import accepted
from reforward.models.families import stock_candidate
from reforward.propose.scripted import Scripted


def measure(subject: str, folder: Path, tier: Tier, settings: Settings, *, emit: Emit) -> SessionFacts:
    """Both arms side by side. Nothing is ruled and nothing is kept; a failing candidate raises `CandidateFailed`."""
    check_tree(subject, folder)
    with open_house(subject, settings, emit) as house:
        candidate, incumbent = read_tree(folder, house.loaded.stock), house.best()
        emit(Working(what=f"measuring {short(candidate.id)} against {short(incumbent.id)} at the {tier} tier"))
        facts, _ = house.measure(candidate, incumbent, tier, confirmations=0)
        if isinstance(facts, Failed):
            raise CandidateFailed(facts.stage, facts.reason, facts.log)
        return session_facts(facts)


def submit(subject: str, folder: Path, reason: str, settings: Settings, *, emit: Emit) -> Verdict:
    """Fast tier, then slow tier if it is promising; everything is written down. Returns the last verdict."""
    check_tree(subject, folder)
    with open_house(subject, settings, emit) as opened:
        candidate, best = read_tree(folder, opened.loaded.stock), opened.best()
        refuse_incumbent(opened, candidate, best)
        house = calibrated(opened, emit)
        idea = Idea(candidate=candidate, parent=best.id, author="inbox", reason=reason)
        run = house.new_run(base=best, proposers=("inbox",))
        house.ledger.append(run)
        journal = Journal(house.ledger, run)
        Cycle(house, journal, Scripted((idea,)), Budget(candidates=1), emit).run()
        return journal.verdicts[-1]


def check_tree(subject: str, folder: Path) -> None:
    """`BadInput` before any weights are opened for a folder that cannot hold a candidate of this subject."""
    if named(subject).host == "lm":
        read_tree(folder, stock_candidate("llama"))
    else:
        read_files(folder)


def refuse_incumbent(house: House, candidate: Candidate, best: Candidate) -> None:
    """`BadInput` for what is the incumbent already: a session of equal arms could not rule for it."""
    if candidate.id != best.id:
        return
    name = short(best.id)
    if best.id == house.loaded.stock.id:
        raise BadInput(f"this tree is the stock forward {name}, which is the incumbent; change it, then submit it")
    wins = accepted(house.ledger, house.loaded.subject, house.engine.target, house.contract)
    verdict = [verdict for _, verdict in wins if verdict.candidate == best.id][-1]
    assert verdict.gain is not None
    raise BadInput(
        f"this tree is the incumbent {name} already, accepted with {verdict.gain.mid:+.1%} by verdict "
        f"{short(verdict.id)}; see its evidence with `reforward show {short(verdict.id)}`"
    )
