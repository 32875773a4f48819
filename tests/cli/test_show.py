"""How verdicts look."""

import pytest

from ledger.records import FIRST, STOCK, run, turn
from reforward.cli import show
from reforward.domain.verdict import Finding, Verdict


@pytest.mark.parametrize(
    ("value", "limit", "passed", "words"),
    [
        (0.4, 2.0, True, "at most"),
        (2.5, 2.0, False, "at most"),
        (0.0, 0.0, True, "at most"),
        (3.0, 0.0, False, "at most"),
        (1.0, 1.0, True, "at least"),
        (0.0, 1.0, False, "at least"),
        (0.02, 0.01, True, "at least"),
    ],
)
def test_the_direction_of_a_check_is_read_off_its_finding(value: float, limit: float, passed: bool, words: str):
    assert show.direction(Finding(check="any", value=value, limit=limit, passed=passed)) == words


def test_details_say_the_gain_once_and_each_limit_with_its_direction(capsys: pytest.CaptureFixture[str]):
    verdict = turn(run(), FIRST, STOCK, 0.5)[3]
    assert isinstance(verdict, Verdict)
    show.verdict_details(verdict)
    text = capsys.readouterr().out
    assert "at most 2" in text
    assert "gain" not in text, "the detail of a gain's verdict states it"


def test_rejected_bits_say_which_contract_allows_rounding(capsys: pytest.CaptureFixture[str]):
    bits = Finding(check="bits", value=0.3, limit=0.0, passed=False)
    verdict = Verdict(
        measurement="m", contract="c", candidate="d", tier="fast", ruling="reject", reason="numerics",
        detail="bits: 0.3, limit 0", gain=None, findings=(bits,),
    )  # fmt: skip
    show.verdict_details(verdict)
    assert "--numerics reassociated" in capsys.readouterr().out
