"""The best candidate, derived from what runs wrote down."""

from dataclasses import replace

from ledger.records import CONTRACT, EVERY_KIND, STOCK, SUBJECT, TARGET, candidate, run, turn
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.record import Record
from reforward.ledger.memory import MemoryLedger
from reforward.ledger.views import best_candidate

A, B, C = candidate("a"), candidate("b"), candidate("c")
EXACT = Contract(numerics="bit-exact")


def _best(*turns: tuple[Record, ...], contract: Contract = CONTRACT) -> Candidate | None:
    ledger = MemoryLedger()
    ledger.append(CONTRACT, EXACT, STOCK, SUBJECT, TARGET, run(0), run(1), run(0, EXACT))
    for records in turns:
        ledger.append(*records)
    return best_candidate(ledger, SUBJECT, TARGET, contract)


def test_nothing_yet() -> None:
    assert _best() is None


def test_only_the_slow_tier_promotes() -> None:
    assert _best(turn(run(), A, STOCK, 0.5, tier="fast")) is None
    assert _best(turn(run(), A, STOCK, 0.5, ruling="unsure"), turn(run(), B, STOCK, 0.5, ruling="reject")) is None
    assert _best(turn(run(), A, STOCK, 0.5)) == A


def test_gains_multiply_along_the_chain() -> None:
    assert _best(turn(run(), A, STOCK, 0.5), turn(run(), B, A, 0.2)) == B


def test_a_later_run_from_the_stock_does_not_displace_a_better_one() -> None:
    first = (turn(run(0), A, STOCK, 0.5), turn(run(0), B, A, 0.5))
    assert _best(*first, turn(run(1), C, STOCK, 0.9)) == B
    assert _best(*first, turn(run(1), C, STOCK, 1.5)) == C


def test_other_classes_and_targets_do_not_count() -> None:
    exact = turn(run(0, EXACT), A, STOCK, 0.9)
    assert _best(exact) is None
    assert _best(exact, contract=EXACT) == A
    elsewhere = replace(run(), target="target:b2:0")
    assert _best((elsewhere,), turn(elsewhere, A, STOCK, 0.9)) is None


def test_failures_and_skips_stand_in_no_ones_way() -> None:
    assert _best(EVERY_KIND, turn(run(), A, STOCK, 0.9)) == A
