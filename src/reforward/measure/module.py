"""Any module: fresh inputs drawn by the stock, both arms called on the same ones, every timed output compared."""

from dataclasses import dataclass
from typing import cast

from reforward.domain.measurement import ArmName, Output, Tensor
from reforward.domain.ports import Engine, ModuleWorker, Prepared, Worker
from reforward.domain.record import content_hash
from reforward.domain.subject import Tier
from reforward.measure.references import References
from reforward.measure.replay import Clock
from reforward.measure.session import Timed

WARM_CALLS = 2

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One timed call of the candidate and the stock's answer to the same inputs."""

    name: str
    made: dict[str, Tensor]
    stock: dict[str, Tensor]


class ModuleTrial:
    """The `module` host's side of a session. Input i of a pass has a seed of its own, made from the nonce."""

    def __init__(
        self, engine: Engine, references: References, tier: Tier, nonce: str, *, inputs: int, clock: Clock
    ) -> None:
        self.engine, self.references, self.nonce = engine, references, nonce
        self.tier: Tier = tier
        self.count, self.clock = inputs, clock
        self.calls: list[Call] = []
        self.played: list[tuple[str, Inputs, dict[str, Tensor]]] = []
        """Calls of the candidate whose references are still to be made."""
        self._drawn: tuple[str, list[Inputs]] = ("", [])

    def start(self, prepared: Prepared) -> ModuleWorker:
        """A fresh worker."""
        self._refer()
        return self.engine.start_module(prepared)

    def warm(self, worker: Worker, launch: int) -> None:
        """A few calls on other inputs."""
        for inputs in self._inputs(f"{launch}/warm", WARM_CALLS):
            _module(worker).call(inputs)
        worker.pause()

    def timed(self, worker: Worker, arm: ArmName, launch: int, text: int) -> Timed:
        """One call per input; the clock covers the calls alone."""
        material = self._inputs(f"{launch}/{text}", self.count)
        answers: list[dict[str, Tensor]] = []
        spent = 0
        worker.resume()
        for inputs in material:
            begun = self.clock()
            answers.append(_module(worker).call(inputs))
            spent += self.clock() - begun
        worker.pause()
        if arm == "candidate":
            names = [f"launch {launch}, text {text}, input {index}" for index in range(len(material))]
            self.played += zip(names, material, answers, strict=True)
        return Timed(seconds=spent / 1e9)

    def outputs(self) -> tuple[Output, ...]:
        """All output tensors of all timed calls of the candidate."""
        self._refer()
        return tuple(output for call in self.calls for output in _outputs(call))

    def _inputs(self, part: str, count: int) -> list[Inputs]:
        """Drawn once for both arms: the second of them asks for the same part."""
        if self._drawn[0] != part:
            seeds = [_seed(f"{self.nonce}/{part}/{index}") for index in range(count)]
            self._drawn = part, [self.references.draw(seed, self.tier) for seed in seeds]
        return self._drawn[1]

    def _refer(self) -> None:
        """The stock's answers, when the pair is over: a wait after the passes of one arm alone would tell it which it is."""
        for name, inputs, made in self.played:
            self.calls.append(Call(name=name, made=made, stock=self.references.call(inputs)))
        self.played = []


def _outputs(call: Call) -> list[Output]:
    """By name over both trees: what one side lacks is an empty tensor, which the judge sees as another shape."""
    names = sorted(call.made.keys() | call.stock.keys())
    nothing = Tensor(dtype="missing", shape=(0,), data=b"")
    return [
        Output(
            name=f"{call.name}, {name}",
            candidate=call.made.get(name, nothing),
            stock=call.stock.get(name, nothing),
        )
        for name in names
    ]


def _seed(text: str) -> int:
    return int(content_hash(text.encode())[:15], 16)


def _module(worker: Worker) -> ModuleWorker:
    return cast(ModuleWorker, worker)
