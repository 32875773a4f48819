"""A stopping rule that tells how far its session has come."""

from collections.abc import Sequence
from typing import Literal

from reforward.app.events import Emit, Paired
from reforward.domain.measurement import Sample
from reforward.domain.ports import Stopping


class Told:
    """Implements `Stopping`: rules as `rule` does, and emits `Paired` after each pair of launches that goes on."""

    def __init__(self, rule: Stopping, most: int, emit: Emit) -> None:
        self.rule, self.most, self.emit = rule, most, emit

    def observe(self, samples: Sequence[Sample]) -> Literal["continue", "stop"]:
        """Asked after each completed pair of launches."""
        ruled = self.rule.observe(samples)
        if ruled == "continue":
            self.emit(Paired(done=len({sample.launch for sample in samples}), most=self.most))
        return ruled
