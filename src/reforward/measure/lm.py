"""Language models: secret prompts, greedy decoding through the scheduler, logits rows kept for the judge.

Fast tier: the first layers, a short workload, and a continuation that the client feeds token by token, since the own
greedy text of a truncated model collapses into repetition. Slow tier: the whole model, free-running.
"""

import random
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from reforward.domain.contract import Contract
from reforward.domain.measurement import ArmName, Output, Tensor
from reforward.domain.ports import Engine, LmWorker, Prepared, Worker
from reforward.domain.spec import Limits
from reforward.domain.subject import Tier
from reforward.domain.workload import Workload
from reforward.engine.schedule import Script
from reforward.measure.arrays import rows_of, tensor_of
from reforward.measure.handover import Left, tried
from reforward.measure.references import References
from reforward.measure.replay import Clock, Row, Timing, ignore, replay
from reforward.measure.session import Timed
from reforward.measure.text import Encode, prompts

CALL_TOKENS = 256
"""Tokens of one call: prompts are prefilled in chunks of at most this."""
OUTBOX_BYTES = 64 << 20
KEEP_BYTES = 80 << 20
"""Rows that a session holds for the judge, all three forwards together."""
WARM_STEPS = 1
"""Decode steps of a warm-up, after its prefill."""
CHECKED = 3
"""One in so many requests of a pass is checked against the stock, drawn secretly; every token against its own row."""
ORACLE = 3
"""One in so many checked requests is compared with the float64 oracle too: the farthest from the stock, and others."""
MOST_ROWS, LEAST_ROWS = 24, 4
"""Rows of a pass that are checked: many while a session is young, fewer of each pass as it grows longer."""
SPARE = 1.5
"""Times as many rows are taken as will be checked, since each has a lot of its own."""
WRONG_ROWS = 4
"""Rows that broke a rule by themselves are kept as evidence, up to so many a pass."""
LAST_TEXT = 1
"""Of the passes that one worker plays; after it, its state may be tried."""
BLOCK = 16
"""Rows copied from the outbox at once."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One candidate pass: what was played, what came back, and the rows that were drawn for checking."""

    launch: int
    text: int
    scripts: tuple[Script, ...]
    produced: dict[int, tuple[int, ...]]
    rows: dict[tuple[int, int], NDArray[np.float32]]
    """By (request, output)."""
    wrong: frozenset[tuple[int, int]]
    """Those that broke a rule by themselves."""

    def keys_of(self, request: int) -> list[tuple[int, int]]:
        """Keys of the kept rows of one request, in order."""
        return sorted(key for key in self.rows if key[0] == request)


@dataclass(kw_only=True)
class Collector:
    """Watches a pass, of either arm alike: a worker must not see which one it is. Drawn rows are taken as they are when their
    token arrives, so that a row that is written later counts for nothing; of all rows, those that are wrong by themselves are
    kept when the clock has stopped.

    A worker can see which of its rows were read. So some are drawn of every request alike, each by a lot of its own, and
    only the secret says, when the pass is over, which requests are checked.
    """

    drawn: frozenset[tuple[int, int]]
    """(request, output)."""
    worker: LmWorker
    rows: dict[tuple[int, int], NDArray[np.float32]] = field(default_factory=dict[tuple[int, int], NDArray[np.float32]])
    wrong: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def arrived(self, rows: Sequence[Row]) -> None:
        """Under the clock: copy what was drawn."""
        for row in rows:
            if (row.request, row.output) in self.drawn:
                self.rows[row.request, row.output] = rows_of(self.worker.rows(row.place, 1))[0]

    def forget(self, requests: Container[int]) -> None:
        """The pass is over: rows of the requests that are not checked, and not wrong by themselves, go."""
        self.rows = {key: row for key, row in self.rows.items() if key[0] in requests or key in self.wrong}

    def harvest(self, rows: Sequence[Row]) -> None:
        """Read the outbox in blocks."""
        for at in range(0, len(rows), BLOCK):
            block = rows[at : at + BLOCK]
            values = rows_of(self.worker.rows(block[0].place, len(block)))
            for row, value in zip(block, values, strict=True):
                self._check(row, value)

    def _check(self, row: Row, value: NDArray[np.float32]) -> None:
        wrong = int(value.argmax()) != row.token or not np.isfinite(value).all()
        if wrong and len(self.wrong) < WRONG_ROWS:
            self.wrong.add((row.request, row.output))
            self.rows[row.request, row.output] = value.copy()


class LmTrial:
    """The `lm` host's side of a session. `nonce` fixes all texts; `draw` is secret and fixes what is checked."""

    def __init__(
        self, engine: Engine, references: References, contract: Contract, workload: Workload, tier: Tier, nonce: str,
        *, encode: Encode, clock: Clock, steps: int, draw: random.Random,
    ) -> None:  # fmt: skip
        assert engine.spec is not None, "a language model has a spec"
        self.engine, self.references, self.contract, self.workload = engine, references, contract, workload
        self.nonce, self.encode, self.clock, self.draw = nonce, encode, clock, draw
        self.tier: Tier = tier
        self.depth = engine.subject.depth_of(tier)
        row_bytes = 4 * engine.spec.vocab
        self.limits = limits_for(workload, row_bytes, steps)
        self.room = KEEP_BYTES // (3 * row_bytes)
        """Rows that fit."""
        self.rows_per_pass = max(LEAST_ROWS, min(MOST_ROWS, self.room // (2 * contract.min_pairs)))
        self.kept: list[Kept] = []
        self.handed: tuple[Output, ...] = ()

    def start(self, prepared: Prepared) -> LmWorker:
        """A fresh worker at this tier's depth."""
        return self.engine.start_lm(prepared, depth=self.depth, limits=self.limits)

    def warm(self, worker: Worker, launch: int) -> None:
        """The shapes of a pass, with a few steps of decoding only."""
        outputs = 1 + max(WARM_STEPS, self.limits.steps)
        scripts = [replace(script, outputs=min(script.outputs, outputs)) for script in self._scripts(f"{launch}/warm")]
        replay(_lm(worker), scripts, self.limits, self.clock, ignore)

    def timed(self, worker: Worker, arm: ArmName, launch: int, text: int) -> Timed:
        """One pass over the workload."""
        scripts = self._scripts(f"{launch}/{text}")
        checked = self._checked(scripts)
        collector = Collector(drawn=self._drawn(scripts, len(checked)), worker=_lm(worker))
        worker.resume()
        timing = replay(_lm(worker), scripts, self.limits, self.clock, collector.harvest, collector.arrived)
        if arm == "candidate":
            collector.forget(checked)
            self._keep(launch, text, scripts, timing, collector)
            if self.tier == "slow" and launch == 0 and text == LAST_TEXT:
                self._hand_over(_lm(worker), scripts, timing)
        return Timed(
            seconds=timing.busy_ns / 1e9,
            ttft_s=tuple(timing.ttft_ns[request] / 1e9 for request in range(len(scripts))),
            decode_s=timing.decode_ns / 1e9,
            decode_tokens=timing.decode_tokens,
        )

    def outputs(self) -> tuple[Output, ...]:
        """Kept rows beside the stock's, and for a secret part beside the oracle's."""
        if self.contract.numerics == "bit-exact":
            return *(output for kept in self.kept for output in self._replayed(kept)), *self.handed
        checks = [(kept, request) for kept in self.kept for request in sorted({request for request, _ in kept.rows})]
        made = [self._taught(*check) for check in checks]
        for index in self._for_oracle(made):
            made[index] = replace(made[index], oracle=self._teach(*checks[index], oracle=True))
        return *made, *self.handed

    def _keep(self, launch: int, text: int, scripts: tuple[Script, ...], timing: Timing, seen: Collector) -> None:
        """Keep as many rows of a pass as of the others; if all no longer fit, fewer of each."""
        produced = {request: tuple(tokens) for request, tokens in timing.produced.items()}
        wrong = frozenset(seen.wrong)
        kept = Kept(launch=launch, text=text, scripts=scripts, produced=produced, rows=seen.rows, wrong=wrong)
        self.kept.append(self._thinned(kept))
        while sum(len(kept.rows) for kept in self.kept) > self.room and self.rows_per_pass > LEAST_ROWS:
            self.rows_per_pass = max(LEAST_ROWS, self.rows_per_pass // 2)
            self.kept = [self._thinned(kept) for kept in self.kept]

    def _hand_over(self, worker: LmWorker, scripts: tuple[Script, ...], timing: Timing) -> None:
        """What the last pass of a worker left in one of its slots, tried on another."""
        slot, request = self.draw.choice(sorted(timing.held.items()))
        script = scripts[request]
        tokens = script.prompt + (script.feed or tuple(timing.produced[request]))
        known = len(script.prompt) + script.outputs - 1
        left = Left(slot=slot, stored=tokens[:known], token=tokens[known])
        name = f"launch 0, text {LAST_TEXT}, request {request}"
        with self.references.beside(self.depth, self.limits) as turn:
            self.handed = tried(name, worker, turn, left, self.limits, self.draw, self.contract.numerics == "bit-exact")

    def _thinned(self, kept: Kept) -> Kept:
        """What is wrong stays, then first rows up to half, then others by lot."""
        first = sorted(key for key in kept.rows if key not in kept.wrong and key[1] == 0)[: self.rows_per_pass // 2]
        others = sorted(key for key in kept.rows if key not in kept.wrong and key[1] > 0)
        drawn = self.draw.sample(others, min(len(others), self.rows_per_pass - len(first)))
        stay = kept.wrong.union(first, drawn)
        return replace(kept, rows={key: row for key, row in kept.rows.items() if key in stay})

    def _for_oracle(self, outputs: Sequence[Output]) -> list[int]:
        """Those farthest from the stock, and as many others, drawn."""
        count = -(-len(outputs) // ORACLE)
        ranked = sorted(range(len(outputs)), key=lambda index: -farthest(outputs[index]))
        far, others = ranked[: -(-count // 2)], ranked[-(-count // 2) :]
        return [*far, *self.draw.sample(others, count - len(far))]

    def _scripts(self, part: str) -> tuple[Script, ...]:
        requests = self.workload.requests
        fed = self.tier == "fast"
        lengths = [request.prompt_tokens + (request.output_tokens if fed else 0) for request in requests]
        texts = prompts(f"{self.nonce}/{part}", lengths, self.encode)
        return tuple(
            Script(prompt=text[: r.prompt_tokens], outputs=r.output_tokens, feed=text[r.prompt_tokens :])
            for r, text in zip(requests, texts, strict=True)
        )

    def _checked(self, scripts: Sequence[Script]) -> frozenset[int]:
        """Which requests of a pass to check."""
        count = -(-len(scripts) // CHECKED)
        return frozenset(self.draw.sample(range(len(scripts)), min(count, self.rows_per_pass // 2)))

    def _drawn(self, scripts: Sequence[Script], checked: int) -> frozenset[tuple[int, int]]:
        """Which rows of every request to take: the first, and enough others if `checked` requests are checked."""
        each = SPARE * (self.rows_per_pass / checked - 1)
        return frozenset(
            (request, output)
            for request, script in enumerate(scripts)
            for output in range(script.outputs)
            if output == 0 or self.draw.random() * (script.outputs - 1) < each
        )

    def _taught(self, kept: Kept, request: int) -> Output:
        return _output(kept, request, self._teach(kept, request, oracle=False))

    def _teach(self, kept: Kept, request: int, *, oracle: bool) -> Tensor:
        """A reference's rows where the candidate's were kept, over what it consumed and produced."""
        script = kept.scripts[request]
        tokens = script.prompt + (script.feed or kept.produced[request])
        wanted = [len(script.prompt) - 1 + output for _, output in kept.keys_of(request)]
        return tensor_of(self.references.teach(self.depth, tokens, wanted, oracle=oracle))

    def _replayed(self, kept: Kept) -> list[Output]:
        """The stock over the same plans, fed with what the candidate consumed."""
        scripts = [
            replace(script, feed=script.feed or kept.produced[request]) for request, script in enumerate(kept.scripts)
        ]
        stock: dict[tuple[int, int], NDArray[np.float32]] = {}

        def harvest(worker: LmWorker, rows: Sequence[Row]) -> None:
            for row in rows:
                if (row.request, row.output) in kept.rows:
                    stock[row.request, row.output] = rows_of(worker.rows(row.place, 1))[0].copy()

        self.references.replayed(self.depth, scripts, self.limits, harvest)
        return [
            _output(kept, request, tensor_of(np.stack([stock[key] for key in kept.keys_of(request)])))
            for request in sorted({request for request, _ in kept.rows})
        ]


def _output(kept: Kept, request: int, stock: Tensor) -> Output:
    keys = kept.keys_of(request)
    return Output(
        name=f"launch {kept.launch}, text {kept.text}, request {request}",
        candidate=tensor_of(np.stack([kept.rows[key] for key in keys])),
        stock=stock,
        tokens=tuple(kept.produced[request][output] for _, output in keys),
        positions=tuple(len(kept.scripts[request].prompt) - 1 + output for _, output in keys),
    )


def farthest(output: Output) -> float:
    """RMS distance between candidate and stock in the row where it is largest; infinite if it is no number."""
    distance = np.sqrt(np.square(rows_of(output.candidate) - rows_of(output.stock)).mean(axis=1)).max()
    return float(distance) if np.isfinite(distance) else float("inf")


def limits_for(workload: Workload, row_bytes: int, steps: int) -> Limits:
    """What a worker is asked for to replay `workload`: one outbox for a whole pass if memory allows."""
    slots = min(workload.concurrency, len(workload.requests))
    rows = max(slots * steps, min(workload.output_tokens, OUTBOX_BYTES // row_bytes))
    return Limits(slots=slots, length=workload.longest, tokens=max(CALL_TOKENS, slots), rows=rows, steps=steps)


def _lm(worker: Worker) -> LmWorker:
    return cast(LmWorker, worker)
