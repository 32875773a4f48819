"""The corpus is complete, and each case says what it is, where it comes from and what must become of it."""

import ast
import re
from pathlib import Path

import pytest

from house.source import ROOT
from reforward.corpus.cases import Case, read_case, read_cases
from reforward.corpus.items import ITEMS
from reforward.models.families import stock_candidate

CASES = read_cases()
HEADER = '"""Does harm.\n\nReported: somebody, somewhere\nCovers: {covers}\nExpect: {expect}\n"""\n\nimport stock\n'


@pytest.mark.parametrize("item", ITEMS)
def test_every_way_to_be_fooled_has_a_case(item: str) -> None:
    assert [case.name for case in CASES if item in case.covers]


def test_the_page_on_trust_lists_every_way_and_names_real_cases() -> None:
    text = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    assert [item for item in ITEMS if f"| {item} |" not in text] == []
    names = {f"{case.host}/{case.name}" for case in CASES}
    assert set(re.findall(r"`((?:lm|module)/[a-z0-9-]+)`", text)) <= names


def test_both_hosts_have_hostile_and_honest_cases() -> None:
    counts = {
        (host, kind): len([case for case in CASES if case.host == host and case.honest == (kind == "honest")])
        for host in ("lm", "module")
        for kind in ("hostile", "honest")
    }
    assert counts["lm", "hostile"] + counts["module", "hostile"] >= 60, counts
    assert counts["lm", "honest"] + counts["module", "honest"] >= 25, counts
    assert min(counts.values()) >= 8, counts


@pytest.mark.parametrize("case", CASES, ids=[f"{case.host}/{case.name}" for case in CASES])
def test_a_case_is_short_and_compiles(case: Case) -> None:
    assert case.about.endswith(".")
    assert case.name.startswith("honest-") == case.honest
    assert case.hostile or not case.covers
    for path, text in case.files.items():
        assert len(text.splitlines()) <= 150, path
        if path.endswith(".py"):
            compile(text, path, "exec")
            assert ast.get_docstring(ast.parse(text)), path


def test_no_two_cases_are_the_same_code() -> None:
    bare = [
        (case.host, tuple(_code(text) for name, text in sorted(case.files.items()) if name.endswith(".py")))
        for case in CASES
    ]
    assert len(set(bare)) == len(bare)


def _code(text: str) -> str:
    return "".join(ast.dump(node) for node in ast.parse(text).body[1:]) or text


def test_a_case_derives_from_the_stock_that_lies_beside_it() -> None:
    stock = stock_candidate("llama")
    case = next(case for case in CASES if case.name == "zeros" and case.host == "lm")
    candidate = case.candidate(stock)
    assert candidate.text_of("stock.py") == stock.text_of("forward.py")
    same = next(case for case in CASES if case.name == "honest-identical" and case.host == "lm")
    assert same.candidate(stock) == stock


@pytest.mark.parametrize(
    ("covers", "expect"), [("drift", "numericks"), ("drifting", "numerics"), ("drift", "failed@lunch"), ("drift", "")]
)
def test_an_unknown_word_in_a_header_is_refused(tmp_path: Path, covers: str, expect: str) -> None:
    (tmp_path / "forward.py").write_text(HEADER.format(covers=covers, expect=expect))
    with pytest.raises(ValueError, match=tmp_path.name):
        read_case("lm", tmp_path)


def test_a_header_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "forward.py").write_text(HEADER.format(covers="drift; caches", expect="numerics, failed@run"))
    case = read_case("lm", tmp_path)
    assert (case.covers, case.expect) == (("drift", "caches"), ("numerics", "failed@run"))
    assert (case.about, case.reported, case.tier, case.sessions) == ("Does harm.", "somebody, somewhere", "slow", 1)
