"""Past winners come first, once each, the newest before the older, and the stock forward before anything new."""

from dataclasses import replace

from propose.test_search import STOCK, brief, verdict
from reforward.domain.candidate import Candidate
from reforward.domain.ports import Brief, Idea
from reforward.propose.scripted import Scripted
from reforward.propose.winners import Winners


def named(name: str) -> Candidate:
    return STOCK.with_files({"forward.py": f"# {name}\n"})


def asked(proposer: Winners, incumbent: Candidate) -> list[Candidate]:
    made: list[Candidate] = []
    now: Brief = replace(brief(), incumbent=incumbent)
    while isinstance(idea := proposer.propose(now), Idea):
        made.append(idea.candidate)
        now = replace(now, verdicts=(*now.verdicts, verdict(idea.candidate, 0.1)))
    return made


def test_what_was_proven_before_is_tried_before_what_is_new() -> None:
    old, newer, serving, fresh = named("old"), named("newer"), named("serving"), named("fresh")
    new = Idea(candidate=fresh, parent=serving.id, author="scripted", reason="new")
    found = asked(Winners([old, serving, newer], Scripted([new])), serving)
    assert [one.id for one in found] == [newer.id, old.id, STOCK.id, fresh.id]
