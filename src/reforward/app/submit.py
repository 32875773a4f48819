"""`measure` and `submit`: one source tree from a folder against the incumbent."""

from pathlib import Path

from reforward.app.budget import Budget
from reforward.app.calibrate import calibrated
from reforward.app.cycle import Cycle
from reforward.app.events import Working
from reforward.app.facts import SessionFacts, session_facts
from reforward.app.house import open_house
from reforward.app.journal import Journal
from reforward.app.optimize import Emit
from reforward.app.settings import Settings
from reforward.app.trees import read_tree
from reforward.domain.errors import CandidateFailed
from reforward.domain.measurement import Failed
from reforward.domain.ports import Idea
from reforward.domain.subject import Tier
from reforward.domain.verdict import Verdict
from reforward.propose.scripted import Scripted


def measure(subject: str, folder: Path, tier: Tier, settings: Settings, *, emit: Emit) -> SessionFacts:
    """Both arms side by side. Nothing is ruled and nothing is kept; a failing candidate raises `CandidateFailed`."""
    with open_house(subject, settings) as house:
        candidate = read_tree(folder, house.loaded.stock)
        emit(Working(what=house.describe()))
        facts, _ = house.measure(candidate, house.best(), tier, confirmations=0)
        if isinstance(facts, Failed):
            raise CandidateFailed(facts.stage, facts.reason, facts.log)
        return session_facts(facts)


def submit(subject: str, folder: Path, reason: str, settings: Settings, *, emit: Emit) -> Verdict:
    """Fast tier, then slow tier if it is promising; everything is written down. Returns the last verdict."""
    with open_house(subject, settings) as opened:
        candidate = read_tree(folder, opened.loaded.stock)
        emit(Working(what=opened.describe()))
        house = calibrated(opened, emit)
        best = house.best()
        idea = Idea(candidate=candidate, parent=best.id, author="inbox", reason=reason)
        run = house.new_run(base=best, proposers=("inbox",))
        house.ledger.append(run)
        journal = Journal(house.ledger, run)
        Cycle(house, journal, Scripted((idea,)), Budget(candidates=1), emit).run()
        return journal.verdicts[-1]
