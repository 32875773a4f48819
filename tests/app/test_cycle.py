"""The loop against the scripted engine: screening, confirmation, promotion, failures, skips, resume."""

from dataclasses import replace

from app.house import scripted_house
from reforward.app.budget import Budget
from reforward.app.cycle import Cycle
from reforward.app.events import CouldNot, Event, Judged, Promoted
from reforward.app.house import House
from reforward.app.journal import TRIALS, Journal
from reforward.domain.candidate import Candidate
from reforward.domain.ports import Idea, Unable
from reforward.engine.scripted import Pace, Role, scripted_candidate
from reforward.ledger.memory import MemoryLedger
from reforward.propose.scripted import Scripted

QUICK, QUICKER, SLOW, BROKEN = (scripted_candidate(name) for name in ("quick", "quicker", "slow", "broken"))
ROLES = {
    QUICK.id: Role(pace=Pace(step_s=0.008)),
    QUICKER.id: Role(pace=Pace(step_s=0.005)),
    SLOW.id: Role(pace=Pace(step_s=0.02)),
    BROKEN.id: Role(fails=("run", 2)),
}


def ideas(house: House, *candidates: Candidate) -> Scripted:
    stock = house.loaded.stock.id
    return Scripted(tuple(Idea(candidate=c, parent=stock, author="test", reason=c.id[-4:]) for c in candidates))


def start(house: House, *candidates: Candidate, count: int = 10) -> tuple[Cycle, Journal, list[Event]]:
    run = house.new_run(base=house.loaded.stock, proposers=("test",))
    house.ledger.append(run)
    journal = Journal(house.ledger, run)
    events: list[Event] = []
    return Cycle(house, journal, ideas(house, *candidates), Budget(candidates=count), events.append), journal, events


def test_the_best_of_several_is_confirmed_and_promoted():
    house = scripted_house(ROLES)
    cycle, journal, events = start(house, QUICK, SLOW, QUICKER)
    assert cycle.run().id == QUICKER.id
    judged = [(e.candidate.id, e.tier, e.verdict.ruling) for e in events if isinstance(e, Judged)]
    assert judged[:3] == [(QUICK.id, "fast", "accept"), (SLOW.id, "fast", "reject"), (QUICKER.id, "fast", "accept")]
    assert judged[3][:2] == (QUICKER.id, "slow"), "the most promising is confirmed first"
    assert [e.candidate.id for e in events if isinstance(e, Promoted)][-1] == QUICKER.id
    assert journal.incumbent.id == QUICKER.id
    assert house.best().id == QUICKER.id


def test_a_failing_candidate_is_a_row_with_stage_and_log_and_the_run_goes_on():
    house = scripted_house(ROLES)
    cycle, journal, _ = start(house, BROKEN, QUICKER)
    assert cycle.run().id == QUICKER.id
    first = journal.verdicts[0]
    assert (first.candidate, first.ruling, first.reason) == (BROKEN.id, "reject", "failed")
    failed = house.ledger.get(first.measurement)
    assert failed.tag == "failed"
    assert "last line of its log" in failed.body


def test_nothing_promising_leaves_the_stock_forward():
    house = scripted_house(ROLES)
    cycle, journal, _ = start(house, SLOW)
    assert cycle.run().id == house.loaded.stock.id
    assert journal.confirmations == 0


def test_ideas_that_this_machine_cannot_try_are_recorded_once():
    house = scripted_house(ROLES)
    cycle, journal, events = start(house)

    class CannotThenDone:
        name = "test"

        def propose(self, brief):
            unable = Unable(author="test", what="pass native", remedy="install g++")
            return None if unable.what in brief.skipped else unable

    cycle.proposer = CannotThenDone()
    cycle.run()
    assert [e.unable.remedy for e in events if isinstance(e, CouldNot)] == ["install g++"]
    assert journal.skipped == {"pass native"}
    assert len(list(house.ledger.records("skipped"))) == 1


def test_a_resumed_run_repeats_nothing_and_ends_where_an_unbroken_one_does():
    ledger = MemoryLedger()
    house = scripted_house(ROLES, ledger)
    cycle, journal, _ = start(house, QUICK, SLOW, QUICKER)
    assert cycle.turn()
    assert cycle.turn()
    rows = [verdict.id for verdict in journal.verdicts]
    again = Journal(ledger, journal.run)
    assert [verdict.id for verdict in again.verdicts] == rows
    resumed = Cycle(house, again, ideas(house, QUICK, SLOW, QUICKER), Budget(candidates=10), lambda event: None)
    assert resumed.run().id == QUICKER.id
    assert [verdict.id for verdict in again.verdicts][:2] == rows
    fast = [verdict.candidate for verdict in again.verdicts if verdict.tier == "fast"]
    assert sorted(fast) == sorted({QUICK.id, SLOW.id, QUICKER.id}), "each was screened once"
    assert [p.order for p in again.proposals] == [0, 1, 2]


def test_a_budget_of_candidates_ends_screening():
    house = scripted_house(ROLES)
    cycle, journal, _ = start(house, SLOW, QUICK, QUICKER, count=2)
    cycle.run()
    assert journal.screened == 2
    assert all(proposal.candidate != QUICKER.id for proposal in journal.proposals)


def test_the_error_budget_is_shared_by_all_runs_against_the_same_incumbent():
    ledger = MemoryLedger()
    house = scripted_house({}, ledger)
    cycle, journal, _ = start(house, QUICK)
    first = journal.confirmations
    order = journal.propose(Idea(candidate=QUICK, parent=house.loaded.stock.id, author="test", reason="again"))
    assert order == 0
    cycle.decide(QUICK, "slow")
    assert (first, journal.confirmed, journal.confirmations) == (0, 1, 1)
    _, other, _ = start(scripted_house({}, ledger), QUICK)
    assert (other.confirmed, other.confirmations) == (0, 1), "a new run does not begin with a fresh budget"
    trials = replace(house.new_run(base=house.loaded.stock, proposers=(TRIALS, "slow")), started_at="then")
    ledger.append(trials)
    trial = Journal(ledger, trials)
    trial.propose(Idea(candidate=QUICKER, parent=house.loaded.stock.id, author=TRIALS, reason="known code"))
    facts, outputs = house.measure(QUICKER, house.loaded.stock, "slow", confirmations=0)
    trial.close_turn(facts, house.judge(0).rule(facts, outputs, house.contract), QUICKER, house.loaded.stock)
    _, third, _ = start(scripted_house({}, ledger), QUICK)
    assert third.confirmations == 1, "trials of the judge ask for no promotion"
