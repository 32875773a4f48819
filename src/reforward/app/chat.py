"""One greedy answer through one candidate, on the engine that measures: so that a person can read the difference."""

from dataclasses import dataclass

from reforward.domain.candidate import Candidate
from reforward.domain.ports import Engine, LmWorker
from reforward.domain.spec import Limits, Segment
from reforward.models.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Text and tokens of one greedy completion."""

    text: str
    tokens: tuple[int, ...]


def answer(engine: Engine, tokenizer: Tokenizer, candidate: Candidate, prompt: str, *, tokens: int) -> Answer:
    """Greedy completion of a chat prompt by `candidate`, at full depth, at most `tokens` long."""
    assert engine.spec is not None
    ids = tokenizer.chat(prompt)
    limits = Limits(slots=1, length=len(ids) + tokens, tokens=len(ids), rows=1)
    worker = engine.start_lm(engine.prepare(candidate), depth=engine.spec.layers, limits=limits)
    try:
        made = _generate(worker, ids, tokens, tokenizer.stops)
    finally:
        worker.close()
    return Answer(text=tokenizer.decode(made), tokens=tuple(made))


def _generate(worker: LmWorker, prompt: list[int], count: int, stops: frozenset[int]) -> list[int]:
    made = worker.step(prompt, [Segment(slot=0, start=0, length=len(prompt))], [len(prompt) - 1], 0)
    while len(made) < count and made[-1] not in stops:
        at = Segment(slot=0, start=len(prompt) + len(made) - 1, length=1)
        made += worker.step([made[-1]], [at], [0], 0)
    return [token for token in made if token not in stops]
