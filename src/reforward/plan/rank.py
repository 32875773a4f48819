"""The scheduler of one rank, as vLLM V1 has it: continuous batching, chunked prefill, blocks, pauses of the youngest."""

import heapq
from collections import deque
from dataclasses import dataclass, field

from reforward.plan.blocks import Blocks
from reforward.plan.engine import Limits


@dataclass(slots=True)
class Load:
    """What one step of a rank computes."""

    prefill_tokens: int = 0
    prefill_pairs: float = 0.0
    """Sum over prefill tokens of the tokens that each attends to: quadratic in a prompt."""
    batch: int = 0
    """Requests that decode one token."""
    context: int = 0
    """Tokens that they attend to, all together."""
    filled: list[int] = field(default_factory=lambda: [])
    """Requests whose prompt ends in this step: they leave a token."""
    admitted: list[int] = field(default_factory=lambda: [])


class Rank:
    """Requests are numbers that index `prompt` and `output` (tokens). Time is not known here; steps are.

    Source of the rules: `vllm/v1/core/sched/scheduler.py`. Requests that decode come first, then the one prompt that is
    partly done, then waiting ones in order of arrival while tokens, seats and blocks last. If a decoding request finds no
    block, the one admitted last is paused: it loses its blocks, goes to the head of the queue, and computes anew what
    others have taken meanwhile.
    """

    def __init__(self, limits: Limits, blocks: int, prompt: list[int], output: list[int], *, received: int = 0) -> None:
        self.received = received
        self.limits, self.prompt, self.output = limits, prompt, output
        self.blocks = Blocks(blocks)
        self.waiting: deque[int] = deque()
        self.running: list[int] = []
        self.part: tuple[int, int] | None = None
        """The request whose prompt is partly done, and how many of its tokens are."""
        self.steps = 0
        self.context = 0
        self.made: dict[int, int] = {}
        """Tokens that a paused request had made."""
        self.pauses = 0
        self.paused: list[int] = []
        """Paused, and finished, since the caller last cleared the list."""
        self.finished: list[int] = []
        self._base: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self._ends: list[tuple[int, int]] = []
        self._residues = [0] * limits.block_size

    @property
    def decoding(self) -> int:
        """Requests that decode."""
        return len(self._base)

    def free_seats(self) -> bool:
        """Whether one more request may run."""
        return len(self.running) < self.limits.max_num_seqs

    def steady(self) -> bool:
        """Whether the next step decodes only, whatever arrives behind those that wait."""
        if self.part is not None:
            return False
        return not self.waiting or not self.free_seats() or not self._fits(self.waiting[0])

    def run_length(self) -> int:
        """Steps until a request ends or blocks run out; 0 if the next step finds none. Only while steady."""
        if not self._base:
            return 1 << 60
        self._forget()
        return min(self._ends[0][0] - self.steps, self._steps_with_blocks())

    def advance(self, steps: int) -> None:
        """Decode `steps` tokens of each running request."""
        if not self._base:
            return
        self.blocks.take(self._need(steps))
        self._grow(steps)

    def schedule(self) -> Load:
        """Choose the next step; blocks are taken, requests are admitted or paused."""
        paused = self._make_room()
        self.blocks.take(self._need(1))
        load = Load(batch=len(self._base), context=self.context + len(self._base))
        budget = self.limits.max_num_batched_tokens - len(self._base)
        if self.part is not None:
            index, done = self.part
            budget = self._chunk(load, index, done, budget)
        if not paused and self.part is None:
            self._admit(load, budget)
        return load

    def complete(self, load: Load) -> list[int]:
        """The step is over: who left its first token (again, if it was paused). `finished` then holds who is done."""
        self._grow(1)
        for index in load.filled:
            self._start_decoding(index)
        return load.filled

    def _grow(self, steps: int) -> None:
        self.context += steps * len(self._base)
        self.steps += steps
        self._end_those_due()

    def _start_decoding(self, index: int) -> None:
        made = self.made.pop(index, 0) + 1
        if made >= self.output[index]:
            self.running.remove(index)
            self.blocks.give(self._held(self.prompt[index] + made - 1))
            self.finished.append(index)
            return
        length = self.prompt[index] + made - 1
        self._base[index] = length - self.steps
        self._residues[self._base[index] % self.limits.block_size] += 1
        self._end[index] = self.steps + self.output[index] - made
        heapq.heappush(self._ends, (self._end[index], index))
        self.context += length

    def _end_those_due(self) -> None:
        while self._ends and self._ends[0][0] <= self.steps:
            end, index = heapq.heappop(self._ends)
            if self._end.get(index) == end:
                self.blocks.give(self._held(self._stop(index)))
                self.finished.append(index)

    def _stop(self, index: int) -> int:
        """Take a decoding request out; its length in tokens."""
        base = self._base.pop(index)
        self._residues[base % self.limits.block_size] -= 1
        del self._end[index]
        self.running.remove(index)
        self.context -= base + self.steps
        return base + self.steps

    def _forget(self) -> None:
        """Drop ends of requests that were paused."""
        while self._end.get(self._ends[0][1]) != self._ends[0][0]:
            heapq.heappop(self._ends)

    def _need(self, steps: int) -> int:
        """Blocks that decoding takes in the next `steps` steps."""
        size = self.limits.block_size
        first = -self.steps % size
        if steps == 1:
            return self._residues[first]
        turns, rest = divmod(steps, size)
        return turns * len(self._base) + sum(self._residues[(first - i) % size] for i in range(rest))

    def _steps_with_blocks(self) -> int:
        size, free = self.limits.block_size, self.blocks.free
        turns, left = divmod(free, len(self._base))
        steps, first = turns * size, -self.steps % size
        for i in range(size):
            left -= self._residues[(first - i) % size]
            if left < 0:
                break
            steps += 1
        return steps

    def _make_room(self) -> bool:
        """Pause the youngest until all others find their next block."""
        paused = False
        while self._base and self._need(1) > self.blocks.free:
            self._pause(self.running[-1])
            paused = True
        return paused

    def _pause(self, index: int) -> None:
        self.pauses += 1
        self.paused.append(index)
        if self.part is not None and self.part[0] == index:
            length = self.part[1]
            self.part = None
            self.running.remove(index)
        else:
            self.made[index] = self.output[index] - (self._end[index] - self.steps)
            length = self._stop(index)
        self.blocks.give(self._held(length), index)
        self.waiting.appendleft(index)

    def _held(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _target(self, index: int) -> int:
        return self.prompt[index] + self.made.get(index, 0)

    def _kept(self, index: int) -> int:
        """Whole blocks of its own that a request finds; the last token is always computed."""
        return min(self.blocks.kept(index), (self._target(index) - 1) // self.limits.block_size)

    def _fits(self, index: int) -> bool:
        """Whether the whole prompt finds blocks (`scheduler_reserve_full_isl`), or there is nobody to wait for."""
        return self._held(self._target(index)) <= self.blocks.free

    def _admit(self, load: Load, budget: int) -> None:
        while self.waiting and budget > 0 and self.free_seats() and self._fits(self.waiting[0]):
            index = self.waiting.popleft()
            self.running.append(index)
            load.admitted.append(index)
            if index < self.received and index not in self.made:
                self._receive(load, index)
                continue
            kept = self._kept(index)
            self.blocks.reclaim(index, kept)
            budget = self._chunk(load, index, kept * self.limits.block_size, budget)

    def _receive(self, load: Load, index: int) -> None:
        """A prompt that was computed elsewhere, and its first token: the request decodes from the next step on."""
        self.blocks.take(self._held(self.prompt[index]))
        load.filled.append(index)

    def _chunk(self, load: Load, index: int, done: int, budget: int) -> int:
        """Compute a piece of a prompt; the tokens that are left of the budget."""
        target = self._target(index)
        tokens = min(target - done, budget)
        blocks = self._held(done + tokens) - self._held(done)
        if blocks > self.blocks.free:
            self._pause(index)
            return 0
        self.blocks.take(blocks)
        load.prefill_tokens += tokens
        load.prefill_pairs += tokens * (done + (tokens + 1) / 2)
        self.part = None if done + tokens == target else (index, done + tokens)
        if self.part is None:
            load.filled.append(index)
        return budget - tokens
