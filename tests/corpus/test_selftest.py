"""A handful of the corpus through real processes, and what the runner makes of verdicts."""

import pytest

from reforward.app.trust.outcomes import Outcome, Report
from reforward.app.trust.selftest import not_run, quick_set, selftest
from reforward.corpus.cases import read_cases
from reforward.corpus.items import ITEMS
from reforward.domain.errors import BadInput


def outcome(expected: str, *, held: bool = True, ruling: str = "reject") -> Outcome:
    return Outcome(
        case="a", host="lm", expected=expected, about="", ruling=ruling, reason="", layer="-", detail="why", held=held,
        seconds=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("host", ["lm", "module"])
def test_cheats_are_caught_and_the_honest_kept(host: str) -> None:
    seen: list[Outcome] = []
    report = selftest(host=host, full=False, only="renamed", emit=seen.append)  # type: ignore[arg-type]
    assert tuple(seen) == report.outcomes
    assert report.held, seen
    report = selftest(host=host, full=False, only="zeros", emit=seen.append)  # type: ignore[arg-type]
    assert report.headline() == "caught 1/1, honest kept 0/0, false accepts in A/A 0/0"
    assert report.outcomes[0].layer == "numerics"


def test_the_quick_set_has_every_item_and_all_honest_cases() -> None:
    cases = read_cases()
    chosen = quick_set(cases)
    assert [case for case in cases if case.honest] == [case for case in chosen if case.honest]
    assert {item for case in chosen for item in case.covers} == set(ITEMS)
    assert len(chosen) < len(cases)


def test_one_that_gets_through_fails_the_whole() -> None:
    good = (outcome("hostile"), outcome("honest"), outcome("identical"))
    assert Report(outcomes=good, not_run=(), seconds=0.0).held
    bad = Report(outcomes=(*good, outcome("hostile", held=False)), not_run=(), seconds=0.0)
    assert not bad.held
    assert bad.headline() == "caught 1/2, honest kept 1/1, false accepts in A/A 0/1"
    wrong = Report(outcomes=(*good, outcome("identical", held=False)), not_run=(), seconds=0.0)
    assert wrong.headline() == "caught 1/1, honest kept 1/1, false accepts in A/A 1/2"


def test_what_was_not_run_is_said_and_not_counted() -> None:
    skipped = outcome("hostile", ruling="skipped")
    assert Report(outcomes=(skipped,), not_run=(), seconds=0.0).count("hostile") == (0, 0)
    lines = not_run(read_cases(), (), (skipped,), full=False)
    assert any("why" in line for line in lines)
    assert any("--full" in line for line in lines)


def test_no_case_of_that_name() -> None:
    with pytest.raises(BadInput, match="no case"):
        selftest(host=None, full=False, only="no such case", emit=lambda _: None)
