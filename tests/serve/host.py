"""A switch on the scripted engine, clients that keep what they are told, and what the model would say."""

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from threading import Event

import numpy as np

from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.record import Record
from reforward.domain.spec import Limits
from reforward.engine.scripted import Role, ScriptedEngine, tiny_subject
from reforward.serve.sampling import Drawing
from reforward.serve.scheduler import SPARE
from reforward.serve.sequence import Piece, Sequence, Wish
from reforward.serve.switch import Choice, Shape, Switch

SUBJECT, SPEC, STOCK = tiny_subject()
LIMITS = Limits(slots=3 + SPARE, length=128, tokens=32, rows=32)
CONTRACT = Contract(numerics="reassociated")


@dataclass(kw_only=True)
class Asked:
    """One request, and all that its client was told."""

    sequence: Sequence
    pieces: list[Piece] = field(default_factory=list[Piece])
    over: Event = field(default_factory=Event)

    def wait(self) -> "Asked":
        assert self.over.wait(20), f"no end after {len(self.sequence.produced)} tokens"
        return self


class Served:
    """A running switch; what it records and says is kept."""

    def __init__(
        self, roles: Mapping[str, Role] | None = None, *, stock: Role | None = None, exact: bool = False
    ) -> None:
        self.engine = ScriptedEngine(SUBJECT, SPEC, roles or {}, stock=stock)
        self.records: list[Record] = []
        self.said: list[str] = []
        clock = self.engine.clock
        shape = Shape(limits=LIMITS, chunk=16, exact=exact, clock=lambda: clock() / 1e9)
        self.switch = Switch(
            self.engine, STOCK, CONTRACT, shape,
            record=self.records.append, tell=self.said.append, ended=lambda sequence: None,
        )  # fmt: skip

    def start(self, candidate: Candidate = STOCK) -> "Served":
        self.switch.start(Choice(candidate=candidate))
        return self

    def ask(self, prompt: Many[int], most: int, *, seed: int | None = None) -> Asked:
        def deliver(piece: Piece) -> None:
            asked.pieces.append(piece)
            if piece.reason is not None:
                asked.over.set()

        drawing = Drawing(temperature=0) if seed is None else Drawing(temperature=1, seed=seed)
        sequence = Sequence(
            prompt=tuple(prompt),
            wish=Wish(drawing=drawing, most=most),
            decode=lambda tokens: f"{tokens}",
            deliver=deliver,
        )
        asked = Asked(sequence=sequence)
        self.switch.driver.submit(sequence)
        return asked

    def expected(self, prompt: Many[int], most: int) -> list[int]:
        """The greedy answer of the model itself."""
        model, hidden = self.engine.model, np.zeros(SPEC.hidden, np.float32)
        made: list[int] = []
        for token in prompt:
            hidden = model.advance(hidden, token, SUBJECT.depth, np.float32, False)
        while len(made) < most:
            made.append(int(model.logits(hidden, np.float32, False).argmax()))
            hidden = model.advance(hidden, made[-1], SUBJECT.depth, np.float32, False)
        return made

    def close(self) -> None:
        self.switch.close()
        self.engine.close()
