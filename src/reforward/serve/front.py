"""The event loop's side of serving: lets requests in, hands their tokens on, and tells a tap when they end."""

import asyncio
import hashlib
import math
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from reforward.domain.call import Call
from reforward.domain.workload import Sampling
from reforward.serve.metrics import Metrics
from reforward.serve.protocol import Refused
from reforward.serve.sequence import Deliver, Piece, Sequence, Wish
from reforward.serve.switch import Switch
from reforward.serve.text import Decode

Observe = Callable[[Call], None]
"""Told of every call that was let in, when it ends; must not block."""
LONGEST_RETRY_S = 60


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a request asks for, once it is understood."""

    prompts: tuple[tuple[int, ...], ...]
    choices: int
    """Of each prompt."""
    wish: Wish
    client: str
    sampling: Sampling
    """As the client said it, for the tap."""


@dataclass(kw_only=True, eq=False)
class Open:
    """A request in service."""

    order: Order
    sequences: list[Sequence] = field(default_factory=list[Sequence])
    arrived: asyncio.Queue[tuple[int, Piece]] = field(default_factory=asyncio.Queue[tuple[int, Piece]])
    begun_at: float = field(default_factory=time.monotonic)
    first_at: float | None = None
    reasons: dict[int, str] = field(default_factory=dict[int, str])
    last_at: dict[int, float] = field(default_factory=dict[int, float])
    over: bool = False

    @property
    def usage(self) -> dict[str, int]:
        """Counts as OpenAI's API tells them."""
        prompt = sum(map(len, self.order.prompts))
        made = sum(len(sequence.produced) for sequence in self.sequences)
        return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


class Front:
    """Used by the event loop's thread alone, but for `_deliver`."""

    def __init__(
        self, switch: Switch, metrics: Metrics, decode: Decode, *, slots: int, queue: int, observe: Observe | None
    ) -> None:
        self.switch, self.metrics, self.decode, self.observe = switch, metrics, decode, observe
        self.slots, self.most = slots, slots + queue
        self.loop = asyncio.get_running_loop()
        self.open: set[Open] = set()
        self.draining = False
        self.mail: deque[tuple[Open, int, Piece]] = deque()
        self.called = False
        self.whole_s = 1.0
        """Running mean of a request's seconds, for guesses of when there is room."""

    @property
    def ready(self) -> bool:
        """Warm, and not about to end."""
        return self.switch.state == "ready" and not self.draining

    @property
    def load(self) -> int:
        """Answers that have not ended."""
        return sum(len(one.sequences) - len(one.reasons) for one in self.open)

    def begin(self, order: Order) -> Open:
        """Let a request in; raises `Refused` if there is no room, or if the server is not ready."""
        count = len(order.prompts) * order.choices
        if self.draining or self.switch.state in ("starting", "failed"):
            words = "the server is about to end" if self.draining else "no worker is ready"
            raise Refused(f"{words}; try again later", status=503, headers={"Retry-After": "5"})
        if self.load + count > self.most:
            wait = math.ceil(self.whole_s * max(1, self.load - self.slots) / self.slots)
            wait = str(min(max(wait, 1), LONGEST_RETRY_S))
            words = f"{self.load} answers are in flight or wait, of {self.most} at most; try again in {wait} s"
            raise Refused(words, status=429, code="rate_limit_exceeded", headers={"Retry-After": wait})
        opened = Open(order=order)
        self.open.add(opened)
        for index in range(count):
            prompt = order.prompts[index // order.choices]
            wish = replace(order.wish, drawing=replace(order.wish.drawing, seed=_seed(order.wish.drawing.seed, index)))
            opened.sequences.append(
                Sequence(
                    prompt=prompt, wish=wish, decode=self.decode, deliver=self._to(opened, index), client=order.client
                )
            )
        for sequence in opened.sequences:
            self.metrics.prompt_tokens.inc(len(sequence.prompt))
            self.switch.driver.submit(sequence)
        return opened

    async def pieces(self, opened: Open) -> AsyncIterator[tuple[int, Piece]]:
        """(choice, piece) until all choices have ended."""
        while len(opened.reasons) < len(opened.sequences):
            index, piece = await opened.arrived.get()
            if piece.reason is not None:
                opened.reasons[index] = piece.reason
            yield index, piece

    def end(self, opened: Open, status: int) -> None:
        """The request is over, for whatever reason: forget what is left of it. Safe to call twice."""
        if opened.over:
            return
        opened.over = True
        self.open.discard(opened)
        for index, sequence in enumerate(opened.sequences):
            if index not in opened.reasons:
                self.switch.driver.cancel(sequence)
                self.metrics.ended("abort")
        seconds = time.monotonic() - opened.begun_at
        self.whole_s += 0.1 * (seconds - self.whole_s)
        if self.observe is not None:
            self.observe(_call(opened, seconds, status))

    async def drained(self) -> None:
        """Let no request in any more; returns when those in service have ended."""
        self.draining = True
        while self.open:
            await asyncio.sleep(0.05)

    def _to(self, opened: Open, index: int) -> Deliver:
        def deliver(piece: Piece) -> None:
            """On the driver's thread. One call of the loop for all that came since the last."""
            self.mail.append((opened, index, piece))
            if not self.called:
                self.called = True
                self.loop.call_soon_threadsafe(self._sort)

        return deliver

    def _sort(self) -> None:
        self.called = False
        while self.mail:
            opened, index, piece = self.mail.popleft()
            if not opened.over:
                self._count(opened, index, piece)
                opened.arrived.put_nowait((index, piece))

    def _count(self, opened: Open, index: int, piece: Piece) -> None:
        metrics, sequence = self.metrics, opened.sequences[index]
        if piece.token is not None:
            metrics.generation_tokens.inc()
            last = opened.last_at.get(index)
            if last is None:
                opened.first_at = opened.first_at or piece.at
                metrics.first_s.observe(piece.at - sequence.arrived_at)
                metrics.queue_s.observe(sequence.began_at - sequence.arrived_at)
            else:
                metrics.between_s.observe(piece.at - last)
            opened.last_at[index] = piece.at
        if piece.reason is not None:
            metrics.ended(piece.reason)
            metrics.whole_s.observe(piece.at - sequence.arrived_at)
            metrics.prompt.observe(len(sequence.prompt))
            metrics.answer.observe(len(sequence.produced))


def new_seed() -> int:
    """For a client that names none."""
    return secrets.randbits(63)


def _seed(seed: int, index: int) -> int:
    """Of a choice: the first has the request's own, the others have some that follow from it."""
    if index == 0:
        return seed
    return int.from_bytes(hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest(), "little")


def _call(opened: Open, seconds: float, status: int) -> Call:
    first, order = opened.sequences[0], opened.order
    reasons = set(opened.reasons.values())
    return Call(
        arrived_s=opened.begun_at,
        seconds=seconds,
        prompt_tokens=sum(map(len, order.prompts)),
        output_tokens=opened.usage["completion_tokens"],
        ttft_s=None if opened.first_at is None else opened.first_at - opened.begun_at,
        sampling=order.sampling,
        status=status,
        finish=reasons.pop() if len(reasons) == 1 else "",
        prompt=order.prompts[0],
        answer=tuple(first.produced),
    )
