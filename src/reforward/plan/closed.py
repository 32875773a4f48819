"""A closed loop in its steady state: so many requests always in flight, each of so many prompt and output tokens."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import BadInput
from reforward.plan.layout import Layout
from reforward.plan.memory import Memory
from reforward.plan.steps import StepTimes

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is asked of one replica. Arrays of one shape, or numbers."""

    prompt: Array
    output: Array
    concurrency: Array
    """Requests in flight over all attention replicas."""

    @classmethod
    def of(cls, prompt: object, output: object, concurrency: object) -> "Load":
        """Checked and broadcast."""
        sizes = [np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in (prompt, output, concurrency)]
        for name, one in zip(("prompt", "output", "concurrency"), sizes, strict=True):
            if not np.all(one >= 1):
                raise BadInput(f"{name} must be at least 1, got {one.min():g}; drop requests without any")
        first, second, third = np.broadcast_arrays(*sizes)
        return cls(prompt=np.array(first), output=np.array(second), concurrency=np.array(third))


@dataclass(frozen=True, kw_only=True)
class Closed:
    """Seconds by load, before anything is learned from served requests."""

    load: Load
    batch: Array
    """Sequences that decode together on one attention replica: as many as are in flight, or as the cache holds."""
    waiting: Array
    """Requests in flight that have no room, over those that have."""
    decode_s: Array
    """A step that only decodes."""
    prefill_s: Array
    """A step that makes the cache of one whole prompt."""
    mixed_s: Array
    """Both together."""
    decode_terms: dict[str, Array]
    prefill_terms: dict[str, Array]

    @property
    def tpot_s(self) -> Array:
        """Seconds per output token after the first: its step, and its share of the others' prompts."""
        others = (self.batch - 1) / self.load.output
        return self.decode_s + others * (self.mixed_s - self.decode_s)

    @property
    def ttft_s(self) -> Array:
        """Seconds to the first token without a queue: half a step until the request is noticed, and its prompt."""
        return self.prefill_s + self.decode_s / 2

    @property
    def queue_s(self) -> Array:
        """Wait for room in the cache: a share of a whole request's time. The correction knows how far it comes true."""
        return self.waiting * self.tpot_s * self.load.output

    @property
    def terms(self) -> dict[str, Array]:
        """Shares of `tpot_s` by term, in seconds; they add up to it."""
        others = (self.batch - 1) / self.load.output
        return {**self.decode_terms, "prompts of others": others * (self.mixed_s - self.decode_s)}


def closed(steps: StepTimes, memory: Memory, layout: Layout, load: Load) -> Closed:
    """The steady state of this load."""
    asked = np.maximum(load.concurrency / layout.dp, 1.0)
    length = load.prompt + load.output / 2
    each = memory.kv_bytes_per_token * length + memory.state_bytes_per_sequence
    room = np.maximum(np.floor(max(memory.kv_budget, 1.0) / each), 1.0)
    batch = np.minimum(np.minimum(asked, room), memory.max_num_seqs)
    before = (load.prompt - 1) / 2
    zero = np.zeros_like(batch)
    decode = _device(steps.terms(zero, zero, batch, length))
    prefill = _device(steps.terms(load.prompt, before, zero, zero))
    return Closed(
        load=load,
        batch=batch,
        waiting=np.maximum(asked / batch - 1, 0.0),
        decode_s=_sum(decode),
        prefill_s=_sum(prefill),
        mixed_s=_sum(_device(steps.terms(load.prompt, before, batch, length))),
        decode_terms=decode,
        prefill_terms=prefill,
    )


def _device(terms: dict[str, Array]) -> dict[str, Array]:
    """Without the host: engines of today prepare a step while the one before it runs, and what shows through is learned."""
    return {name: seconds for name, seconds in terms.items() if name != "host"}


def _sum(terms: dict[str, Array]) -> Array:
    return np.sum(np.stack(list(terms.values())), axis=0)
