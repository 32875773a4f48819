"""Error rates of the judge: sessions in the ledger, resumable; bounds and draws that are right."""

import random

import pytest

from app.house import scripted_house
from reforward.app.facts import share
from reforward.app.journal import TRIALS
from reforward.app.trust.rates import DRAWS, _count, _journal, _session, _visible, drawn_accepts, slowed
from reforward.domain.contract import Contract
from reforward.domain.measurement import Sample
from reforward.domain.verdict import Verdict
from reforward.engine.scripted import Pace, Role
from reforward.judge.gain import by_pair
from reforward.ledger.views import every


def test_sessions_of_identical_code_are_rows_and_go_on_where_they_ended() -> None:
    house = scripted_house({})
    stock = house.loaded.stock
    journal = _journal(house, stock, "fast")
    _session(house, journal, "fast")
    again = _journal(house, stock, "fast")
    assert again.run.id == journal.run.id
    assert len(again.turns) == 1
    _session(house, again, "fast")
    found = _count(house, again, "fast", 0.0, [1.0, 3.0])
    assert (found.accepted.count, found.accepted.of) == (0, 2)
    assert found.session_s == 2.0
    assert found.pairs >= 1
    assert len({verdict.candidate for verdict in every(house.ledger, Verdict)}) == 2, "each copy is a candidate"
    assert {proposal.author for proposal in again.proposals} == {TRIALS}


def test_a_slowed_incumbent_is_another_run_and_its_gain_is_seen() -> None:
    house = scripted_house({})
    base = slowed(house.loaded.stock, 0.5)
    assert _journal(house, base, "fast").run.id != _journal(house, house.loaded.stock, "fast").run.id
    house = scripted_house({base.id: Role(pace=Pace(step_s=0.05))})
    journal = _journal(house, base, "fast")
    assert _session(house, journal, "fast").ruling == "accept"


def test_slowed_code_takes_that_much_longer() -> None:
    import time

    from reforward.domain.candidate import Candidate, SourceFile

    text = "import time\n\n\nclass Net:\n    def forward(self):\n        time.sleep(0.02)\n        return 7\n"
    tree = slowed(Candidate(host="module", entry="net.py:Net", files=(SourceFile(path="net.py", text=text),)), 1.0)
    names: dict[str, type] = {}
    exec(tree.text_of("net.py") or "", names)
    begun = time.perf_counter()
    assert names["Net"]().forward() == 7
    assert time.perf_counter() - begun >= 0.04


@pytest.mark.parametrize(
    ("count", "of", "bound"), [(0, 300, 0.00994), (1, 100, 0.0466), (5, 5, 1.0), (0, 1, 0.95), (3, 30, 0.2387)]
)
def test_upper_bounds_match_the_tables(count: int, of: int, bound: float) -> None:
    assert share(count, of).at_most == pytest.approx(bound, abs=2e-4)
    assert share(of - count, of).at_least == pytest.approx(1 - bound, abs=2e-4)


def pairs(gain: float, count: int = 40) -> list[tuple[Sample, ...]]:
    draw, made = random.Random(1), list[Sample]()
    for launch in range(count):
        for arm in ("incumbent", "candidate", "candidate", "incumbent"):
            speed = 1 + gain * (arm == "candidate")
            made.append(Sample(arm=arm, launch=launch, order=len(made), seconds=draw.lognormvariate(0, 0.03) / speed))
    return by_pair(made)


def test_what_a_tier_sees_follows_from_the_noise_of_all_sessions() -> None:
    contract = Contract(numerics="reassociated")
    sessions = [[sample for pair in pairs(0.0)[start : start + 4] for sample in pair] for start in range(0, 40, 4)]
    (first, at_first), (last, at_last) = _visible(sessions, contract, "slow")
    assert (first, last) == (contract.min_pairs, contract.max_pairs)
    assert at_first > at_last > 0.01 + 2 * 0.03 / 16**0.5
    assert _visible([sessions[0][:2]], contract, "slow") == ()


def test_sessions_drawn_anew_from_identical_code_are_hardly_ever_accepted() -> None:
    found = drawn_accepts(pairs(0.0), Contract(numerics="reassociated"), random.Random(2))
    assert found.of == DRAWS
    assert found.count <= 0.03 * DRAWS
    assert drawn_accepts(pairs(0.0), Contract(numerics="reassociated"), random.Random(2)) == found


def test_drawing_swaps_the_arms_so_that_a_real_gain_is_accepted_half_the_time_at_most() -> None:
    contract = Contract(numerics="reassociated", max_pairs=4)
    assert 0 < drawn_accepts(pairs(0.5)[:1], contract, random.Random(3)).count < 0.6 * DRAWS
