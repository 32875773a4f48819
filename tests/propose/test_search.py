"""The search: a pure function of the brief, cheap and promising passes first, then sums of those that helped."""

from dataclasses import replace

import pytest

from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.contract import Contract
from reforward.domain.ports import Brief, Idea, Unable
from reforward.domain.subject import Subject
from reforward.domain.target import Launch, Machine, Target
from reforward.domain.verdict import Interval, Verdict
from reforward.domain.workload import Request, Workload
from reforward.models.families import stock_candidate
from reforward.propose.passes import PASSES
from reforward.propose.passes.base import Pass
from reforward.propose.scripted import Scripted
from reforward.propose.search import Passes, Trial, combined

STOCK = stock_candidate("llama")
TOOLS = frozenset({"c++"})
GAINS = {"native-step": 2.0, "grouped-attention": 0.3, "head-rows": 0.1, "native-linear": 0.5, "in-place": -0.1}


def brief(verdicts: tuple[Verdict, ...] = (), numerics: str = "reassociated", skipped: tuple[str, ...] = ()) -> Brief:
    subject = Subject(
        name="tiny", host="lm", weights="w", stock=STOCK.id, spec="{}", dtype="float32", depth=4, fast_depth=2
    )
    machine = Machine(cpu="a cpu", cores=2, isa="avx512", memory_gib=8)
    return Brief(
        subject=subject,
        target=Target(subject=subject.id, machine=machine, software=(), launch=Launch(threads=2, pages="4k")),
        workload=Workload(
            name="w", source="made up", weights=(1.0,),
            requests=(Request(arrival_s=0.0, prompt_tokens=4, output_tokens=4),),
        ),
        contract=Contract(numerics=numerics),  # type: ignore[arg-type]
        stock=STOCK,
        incumbent=STOCK,
        verdicts=verdicts,
        skipped=skipped,
    )  # fmt: skip


def verdict(candidate: Candidate, gain: float) -> Verdict:
    return Verdict(
        measurement=f"m-{candidate.id}", contract="c", candidate=candidate.id, tier="fast",
        ruling="accept" if gain > 0.05 else "reject", reason="promising" if gain > 0.05 else "slower", detail="",
        gain=Interval(low=gain - 0.01, mid=gain, high=gain + 0.01),
    )  # fmt: skip


def names(idea: Idea) -> list[str]:
    return idea.reason.partition(":")[0].split(" + ")


def run(proposer: Passes, most: int = 40) -> list[Idea]:
    """The whole search, with gains that add up."""
    ideas: list[Idea] = []
    verdicts: tuple[Verdict, ...] = ()
    while len(ideas) < most:
        idea = proposer.propose(brief(verdicts))
        if idea is None:
            return ideas
        assert isinstance(idea, Idea)
        ideas.append(idea)
        verdicts += (verdict(idea.candidate, sum(GAINS.get(name, 0.0) for name in names(idea))),)
    raise AssertionError("the search does not end")


def test_singles_come_first_then_sums_of_those_that_helped() -> None:
    ideas = run(Passes(tools=TOOLS))
    sizes = [len(names(idea)) for idea in ideas]
    singles = sizes.count(1)
    assert sizes == sorted(sizes)
    assert names(ideas[0]) == ["native-step"]
    assert [names(idea) for idea in ideas[singles:]] == [
        ["native-step", "native-linear"],
        ["native-step", "native-linear", "grouped-attention"],
        ["native-step", "native-linear", "grouped-attention", "head-rows"],
    ]


def test_no_candidate_comes_twice_and_all_name_their_parent() -> None:
    ideas = run(Passes(tools=TOOLS))
    assert len({idea.candidate.id for idea in ideas}) == len(ideas)
    assert {idea.parent for idea in ideas} == {STOCK.id}
    assert STOCK.id not in {idea.candidate.id for idea in ideas}


def test_two_searches_agree_and_a_resumed_one_goes_on() -> None:
    first = run(Passes(tools=TOOLS))
    assert [idea.candidate.id for idea in run(Passes(tools=TOOLS))] == [idea.candidate.id for idea in first]
    half = tuple(verdict(idea.candidate, sum(GAINS.get(n, 0.0) for n in names(idea))) for idea in first[:7])
    resumed = Passes(tools=TOOLS).propose(brief(half))
    assert isinstance(resumed, Idea)
    assert resumed.candidate.id == first[7].candidate.id


def test_a_pass_that_did_not_help_is_not_combined() -> None:
    assert not any("in-place" in names(idea) for idea in run(Passes(tools=TOOLS)) if len(names(idea)) > 1)


def test_without_a_compiler_native_passes_are_skipped_once_with_the_remedy() -> None:
    proposer = Passes(tools=frozenset())
    first = proposer.propose(brief())
    assert isinstance(first, Unable)
    assert "g++" in first.remedy
    second = proposer.propose(brief(skipped=(first.what,)))
    assert isinstance(second, Unable)
    assert second.what != first.what
    third = proposer.propose(brief(skipped=(first.what, second.what)))
    assert isinstance(third, Idea)


def test_a_bit_exact_contract_is_offered_exact_passes_only() -> None:
    proposer = Passes(tools=TOOLS)
    seen: tuple[Verdict, ...] = ()
    while (idea := proposer.propose(brief(seen, numerics="bit-exact"))) is not None:
        assert isinstance(idea, Idea)
        assert all(one.bits != "other" for one in PASSES if one.name in names(idea))
        seen += (verdict(idea.candidate, -1.0),)
    assert seen


def test_fewer_threads_are_not_proposed_where_there_is_one() -> None:
    one = replace(brief().target, launch=Launch(threads=1, pages="4k"))
    many, few = (
        {name for item in Passes(tools=TOOLS).alone(told) if isinstance(item, Trial) for name in [item.passes[0].name]}
        for told in (brief(), replace(brief(), target=one))
    )
    assert many - few == {"one-thread"}


def test_a_new_incumbent_is_the_next_base() -> None:
    base = combined(STOCK, PASSES[:1])
    idea = Passes(tools=TOOLS).propose(replace(brief(), incumbent=base))
    assert isinstance(idea, Idea)
    assert idea.parent == base.id
    assert idea.candidate.text_of("step.cpp") is not None


def test_scripted_replays_in_order_and_ends() -> None:
    made = [one.apply(STOCK) for one in PASSES[2:4]]
    ideas = [Idea(candidate=c, parent=STOCK.id, author="test", reason="because") for c in made if c is not None]
    unable = Unable(author="test", what="magic", remedy="none")
    proposer = Scripted([ideas[0], unable, ideas[1]])
    assert proposer.propose(brief()) == ideas[0]
    heard = (verdict(ideas[0].candidate, 0.1),)
    assert proposer.propose(brief(heard)) == unable
    assert proposer.propose(brief(heard, skipped=("magic",))) == ideas[1]
    assert proposer.propose(brief((*heard, verdict(ideas[1].candidate, 0.1)), skipped=("magic",))) is None


def _explodes(candidate: Candidate) -> Candidate | None:
    raise TypeError(f"never saw {candidate.entry}")


def test_a_pass_that_fails_on_somebodys_code_is_skipped_with_its_reason_and_the_search_goes_on() -> None:
    broken = Pass(name="broken", reason="breaks", apply=_explodes, rank=9.0)
    search = Passes((broken, *PASSES), tools=TOOLS)
    first = search.propose(brief())
    assert isinstance(first, Unable)
    assert first.what == "pass broken"
    assert "TypeError: never saw forward.py:Forward" in first.remedy
    second = search.propose(brief(skipped=("pass broken",)))
    assert isinstance(second, Idea)
    assert combined(STOCK, (broken, *PASSES)) == combined(STOCK, PASSES)


ODD = (
    "class Net: pass",
    "class Net:\n    def __init__(self): self.a = 1; self.b = 2\n    def forward(self, x): return x.clone()",
    "class Net:\n    def forward(self, x): y = x.contiguous(); return y\n",
    "Net = make(lambda x: x)",
    "class Net:\n    async def __init__(self, *, a=1, **kw):\n        ...\n    forward = staticmethod(len)\n",
    "if True:\n    class Net:\n        def __init__(self):\n            pass\n",
    "class Net:\n    '''only text'''\n    def __init__(self):\n        '''only text'''\n",
    "def __init__(self): pass\nclass Net(Base): __init__ = __init__\n",
    "",
)


@pytest.mark.parametrize("text", ODD)
def test_no_pass_fails_on_legal_python_of_any_shape(text: str) -> None:
    files = (SourceFile(path="net.py", text=text),)
    candidate = Candidate(host="module", entry="net.py:Net", files=files)
    for one in PASSES:
        made = one.apply(candidate)
        assert made is None or compile(made.text_of("net.py") or "", "net.py", "exec")
